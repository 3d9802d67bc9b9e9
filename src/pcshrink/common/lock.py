"""One writer for a folder at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pcshrink.errors import CheckpointError


@contextlib.contextmanager
def sole_writer(folder: Path, what: str = "run") -> Iterator[None]:
    """Hold a folder, or refuse if another process does. The lock goes with its process, whatever ends that.

    Args:
        folder: It must exist.
        what: What would be written, for the message.

    Raises:
        CheckpointError: Another process holds the folder.
    """
    try:
        import fcntl
    except ImportError:  # Windows: two writers at once are not kept apart there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"another {what} is writing into {folder} at this moment; wait for it, or choose another folder"
            raise CheckpointError(message) from error
        yield
    finally:
        os.close(handle)


def locked_or_none(folder: str | Path) -> int | None:
    """Lock a folder without waiting: an open handle that keeps the lock, or None if somebody holds it already.

    Also None where the system, or the disk, has no locks.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
