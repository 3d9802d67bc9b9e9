"""Folders for what is not finished yet, and what is left of them when a process was killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pcshrink.common.lock import locked_or_none

_scratch: set[str] = set()
# As ``staging_folder`` and Python's tempfile name them together.
_STAGING = re.compile(r"\..+-[a-z0-9_]{8}\.tmp")


@contextlib.contextmanager
def scratch_folder(*, prefix: str = "pcshrink-", suffix: str = "", dir: str | Path | None = None) -> Iterator[Path]:
    """A folder that is gone afterwards, also where a signal ends the process in between.

    It is locked as long as it is in use, so that ``drop_leftovers`` of another process does not touch it.

    Args:
        prefix: How its name begins.
        suffix: How its name ends.
        dir: Where it is; the system's place for temporary files by default.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=suffix, dir=dir) as folder:
        _scratch.add(folder)
        handle = locked_or_none(folder)
        try:
            yield Path(folder)
        finally:
            if handle is not None:
                os.close(handle)
            _scratch.discard(folder)


def staging_folder(target: Path) -> contextlib.AbstractContextManager[Path]:
    """A hidden scratch folder beside a file that is to be written."""
    return scratch_folder(prefix=f".{target.name}-", suffix=".tmp", dir=target.parent)


def drop_scratch() -> None:
    """Remove all scratch folders of this process, which is about to end."""
    for folder in _scratch:
        shutil.rmtree(folder, ignore_errors=True)


def drop_leftovers(folder: Path) -> None:
    """Remove what writers that were killed left in a folder and in its sub-folders.

    These are the hidden folders in which files are written before they get their names, and nothing else: real folders
    with exactly such a name that no living process holds. Links are not followed. Where the system has no locks,
    nothing can be told apart, and everything stays.
    """
    for place, names, _ in os.walk(folder):
        staging = [name for name in names if _STAGING.fullmatch(name)]
        names[:] = [name for name in names if name not in staging]
        for name in staging:
            _drop_unheld(Path(place, name))


def _drop_unheld(folder: Path) -> None:
    if folder.is_symlink():
        return
    handle = locked_or_none(folder)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
