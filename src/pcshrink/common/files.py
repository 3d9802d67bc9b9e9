"""Files that are either whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pcshrink.common.scratch import staging_folder
from pcshrink.errors import CheckpointError, ShrinkError


@contextlib.contextmanager
def staged(path: str | Path, error: type[ShrinkError] = CheckpointError) -> Iterator[Path]:
    """Somewhere to write a file, which gets its name only when it is whole, on the disk, and nothing was raised.

    The file is written in a hidden folder beside its place. Other files that a writer leaves in that folder belong to
    it and get their names first, so that nobody finds it without them. Where the process is killed the hidden folder
    stays, until ``drop_leftovers`` removes it.

    Args:
        path: The file; its folder is made if needed.
        error: What to raise where it cannot be written.

    Yields:
        Where to write, under the same name.

    Raises:
        CheckpointError: It cannot be written (or whatever ``error`` says); what was there before is unchanged.
    """
    if not isinstance(path, str | Path):
        message = f"a file is named by a path, got {type(path).__name__}"
        raise error(message)
    target = Path(path)
    if target.is_dir():
        message = f"{target} cannot be written: it is a folder; name a file in it"
        raise error(message)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with staging_folder(target) as scratch:
            written = scratch / target.name
            yield written
            companions = [part for part in sorted(scratch.iterdir()) if part != written]
            for part in (*companions, written):
                _sync_file(part)
            for part in (*companions, written):
                part.replace(target.with_name(part.name))
            sync_folder(target.parent)
    except OSError as reason:
        message = f"{target} cannot be written: {reason}; what was there before is unchanged"
        raise error(message) from reason


def write_bytes(path: str | Path, parts: Iterable[bytes], error: type[ShrinkError] = CheckpointError) -> None:
    """Write a file in one step that cannot be half done; ``parts`` come one after the other.

    Raises:
        CheckpointError: It cannot be written (or whatever ``error`` says); what was there before is unchanged.
    """
    with staged(path, error) as temporary, temporary.open("xb") as file:
        file.writelines(parts)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one step that cannot be half done.

    Raises:
        CheckpointError: It cannot be written; what was there before is unchanged.
    """
    write_bytes(path, [text.encode()])


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, and make its content last.

    For those who give files their names by an order of their own; all others take ``write_bytes``.

    Raises:
        OSError: It exists, or cannot be written.
    """
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sync_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
