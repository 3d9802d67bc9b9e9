"""One writer for a folder at a time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pcshrink.errors import CheckpointError

SECONDS_BETWEEN_TRIES = 0.2


@contextlib.contextmanager
def sole_writer(folder: Path, what: str = "run", patience: float = 0.0) -> Iterator[None]:
    """Hold a folder, or refuse if another process does. The lock goes with its process, whatever ends that.

    Args:
        folder: It must exist.
        what: What would be written, for the message.
        patience: Seconds to wait for another process to let go.

    Raises:
        CheckpointError: Another process holds the folder.
    """
    if find_spec("fcntl") is None:  # Windows: two writers at once are not kept apart there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        end = time.monotonic() + patience
        while _try(handle) == "held":  # a disk without locks keeps no two writers apart
            if time.monotonic() >= end:
                message = (
                    f"another {what} is writing into {folder} at this moment; wait for it, or choose another folder"
                )
                raise CheckpointError(message)
            time.sleep(SECONDS_BETWEEN_TRIES)
        yield
    finally:
        os.close(handle)


def locked_or_none(folder: str | Path) -> int | None:
    """Lock a folder without waiting: an open handle that keeps the lock, or None if somebody holds it already.

    Also None where the system, or the disk, has no locks.
    """
    if find_spec("fcntl") is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    if _try(handle) == "taken":
        return handle
    os.close(handle)
    return None


def _try(handle: int) -> Literal["taken", "held", "no locks"]:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "no locks"
    return "taken"
