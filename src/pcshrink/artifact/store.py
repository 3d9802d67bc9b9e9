"""Files that are either whole or not there: locks, hashes, a commit that survives being killed at any point.

A save writes the new weights under a hidden name, then replaces ``pcshrink.json`` (from here on the new
artifact counts), then gives the weights their proper name. A reader takes the weights whose hash the JSON
states, under either name, so it finds the old artifact or the new one, whole, whenever the writer stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from pcshrink.common.files import sync_folder, write_new
from pcshrink.errors import CheckpointError, ConfigError

RECORD = "pcshrink.json"
WEIGHTS = "model.safetensors"
PENDING = ".model-"  # + hash + .safetensors: weights that wait for their name
TEMPORARY = ".pcshrink-new-"  # + process + 8 hex digits: what is being written
_WAITS = re.compile(re.escape(PENDING) + r"([0-9a-f]{32})\.safetensors")
_HALF_WRITTEN = re.compile(re.escape(TEMPORARY) + r"\d+-[0-9a-f]{8}")
LARGEST_RECORD = 64 << 20


def folder_at(dir: str | Path) -> Path:
    """What a caller says is a folder.

    Raises:
        ConfigError: It cannot be one.
    """
    if not isinstance(dir, (str, os.PathLike)) or not str(dir):
        message = f"the folder of an artifact must be a path, got {dir!r}"
        raise ConfigError(message)
    return Path(dir)


def sha256(data: bytes) -> str:
    """The hash of some bytes, as hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_of(path: Path) -> str:
    """The hash of a file, which may be larger than the memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    return digest.hexdigest()


def pending(folder: Path, digest: str) -> Path:
    """Where weights with this hash wait for their name."""
    return folder / f"{PENDING}{digest[:32]}.safetensors"


def size_of(path: Path) -> int:
    """How many bytes a plain file has.

    Raises:
        CheckpointError: It is missing or no plain file.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "is missing"
        message = f"{path} {what}; an artifact is a folder with {RECORD} and {WEIGHTS}"
        raise CheckpointError(message)
    return path.stat().st_size


def read_bytes(path: Path, largest: int | None = None) -> bytes:
    """The whole content of a plain file.

    Raises:
        CheckpointError: It is missing, no plain file, too large or cannot be read.
    """
    try:
        size = size_of(path)
        if largest is not None and size > largest:
            message = f"{path} is absurdly large: {size} bytes, at most {largest} make sense"
            raise CheckpointError(message)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        message = f"{path} cannot be read: {error}"
        raise CheckpointError(message) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the lock is on the folder itself and goes with its process, whatever ends it."""
    try:
        import fcntl
    except ImportError:  # Windows: two writers at once are not kept apart there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def replace_artifact(folder: Path, record: bytes, weights: bytes, digest: str) -> None:
    """Put a new artifact in place of the old one, in one step that cannot be half done.

    Raises:
        CheckpointError: The folder cannot be written; what was there before is whole.
    """
    target = folder / RECORD
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            _finish(folder)
            target = folder / WEIGHTS
            new_weights = _write(folder, weights)
            target = folder / RECORD
            new_record = _write(folder, record)
            new_weights.replace(pending(folder, digest))
            sync_folder(folder)
            new_record.replace(folder / RECORD)
            sync_folder(folder)
            pending(folder, digest).replace(folder / WEIGHTS)
            sync_folder(folder)
    except OSError as error:
        message = f"{target} cannot be written: {error}. What was saved there before is unchanged."
        raise CheckpointError(message) from error
    finally:
        _sweep(folder)


def finish_stopped_save(folder: Path) -> None:
    """Finish or take back a save into this folder that was killed halfway; nothing, if there was none.

    Raises:
        CheckpointError: The folder cannot be written.
    """
    if not folder.is_dir():
        return
    try:
        with locked(folder):
            _finish(folder)
    except OSError as error:
        message = f"what a stopped save left in {folder} cannot be removed: {error}"
        raise CheckpointError(message) from error


def _write(folder: Path, data: bytes) -> Path:
    path = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
    write_new(path, data)
    return path


def _finish(folder: Path) -> None:
    """Do the last step of a save that was stopped after its commit; drop weights that never got so far."""
    record = folder / RECORD
    for path in sorted(folder.iterdir()):
        if _HALF_WRITTEN.fullmatch(path.name):
            path.unlink()
        elif waits := _WAITS.fullmatch(path.name):
            if record.is_file() and f'"{waits[1]}'.encode() in record.read_bytes():
                path.replace(folder / WEIGHTS)
            else:
                path.unlink()


def _sweep(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for stray in folder.glob(f"{TEMPORARY}{os.getpid()}-*"):
            stray.unlink()
