"""Writes WebDataset shards from a folder of images."""

import contextlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pcshrink.common.files import sync_folder
from pcshrink.common.progress import track
from pcshrink.common.scratch import scratch_folder
from pcshrink.data.folder_scan import ImageFiles, scan_parts
from pcshrink.data.shard_scan import CLASSES_FILE
from pcshrink.data.source import derive_seed
from pcshrink.errors import ConfigError, DataError

DEFAULT_SIZE = 1_000_000_000
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def write_shards(
    folder: str | Path, out: str | Path, *, size: int = DEFAULT_SIZE, progress: bool = True
) -> list[Path]:  # fmt: skip
    """Write the images of a folder as shards, byte by byte, with the names of the classes in `classes.txt`.

    They come in a fixed order that mixes the classes, for readers that read one after the other.

    Args:
        folder: `train/CLASS/*` and `val/CLASS/*`, or `CLASS/*`, of which all become `train`.
        out: A new folder; it appears when everything is in it.
        size: Bytes after which the next shard begins.
        progress: Show a progress bar on a terminal, plain lines elsewhere.

    Returns:
        The shards.

    Raises:
        DataError: The folder is not laid out as expected, an image cannot be read, or `out` is not empty.
        ConfigError: `size` is no positive number.
    """
    if type(size) is not int or size < 1:
        msg = f"size must be a whole number of bytes of at least 1, got {size!r}"
        raise ConfigError(msg)
    out = Path(out)
    _refuse_existing(out)
    train, val, home = scan_parts(folder)
    parts = {"train": (train, home)} | ({} if val is None else {"val": (val, Path(folder) / "val")})
    total = sum(len(files.paths) for files, _ in parts.values())
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            scratch_folder(prefix=f".{out.name}-", suffix=".tmp", dir=out.parent) as scratch,
            track(f"writing {total} images into shards", total, enabled=progress) as advance,
        ):
            made = scratch / out.name
            made.mkdir()
            (made / CLASSES_FILE).write_text("".join(f"{name}\n" for name in train.classes), encoding="utf-8")
            for part, (files, where) in parts.items():
                _write_part(made, part, files, where, size, advance)
            _refuse_existing(out)
            made.replace(out)
            sync_folder(out.parent)
    except OSError as error:
        msg = f"cannot write shards to {out}: {error}; nothing is left of them"
        raise DataError(msg) from error
    return sorted(out.glob("*.tar"))


def parse_size(text: str) -> int:
    """Bytes from words such as 500MB.

    Raises:
        ConfigError: It says something else.

    Example:
        >>> parse_size("1.5GB")
        1500000000
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B?)", text.strip().upper())
    if parts is None or parts[2] not in _UNITS or float(parts[1]) * _UNITS[parts[2]] < 1:
        msg = f"a size is a number of bytes such as 1GB or 500MB, got {text!r}"
        raise ConfigError(msg)
    return int(float(parts[1]) * _UNITS[parts[2]])


def _refuse_existing(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        msg = f"{out} exists already; shards are not written over anything: name a new folder"
        raise DataError(msg)


def _write_part(
    made: Path, part: str, files: ImageFiles, where: Path, size: int, advance: Callable[[int], None]
) -> None:
    names = [Path(os.path.relpath(path, where)).as_posix() for path in files.paths]
    keys = _keys(names)
    number, room = -1, 0
    with contextlib.ExitStack() as opened:
        for index in sorted(range(len(names)), key=lambda i: (derive_seed("shards", names[i]), names[i])):
            try:
                image = Path(files.paths[index]).read_bytes()
            except OSError as error:
                msg = f"cannot read the image {files.paths[index]}: {error}; replace or remove it"
                raise DataError(msg) from error
            members = {
                f"{keys[index]}{Path(names[index]).suffix.lower()}": image,
                f"{keys[index]}.cls": str(files.labels[index]).encode(),
            }
            needed = sum(tarfile.BLOCKSIZE + len(content) for content in members.values())
            if number < 0 or needed > room:
                opened.close()
                number, room = number + 1, size
                archive = opened.enter_context(_new_shard(made / f"{part}-{number:06d}.tar"))
            room -= needed
            for name, content in members.items():
                info = tarfile.TarInfo(name)  # no times or owners: the same images give the same bytes
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            advance(1)


def _keys(names: list[str]) -> list[str]:
    """A key for each image: its name without the ending, no dot in its last part, none twice."""
    taken: set[str] = set()
    keys = []
    for name in names:
        folder, slash, base = name.rpartition("/")
        key = folder + slash + base.rpartition(".")[0].replace(".", "_")
        while key in taken:
            key += "_"
        taken.add(key)
        keys.append(key)
    return keys


@contextlib.contextmanager
def _new_shard(path: Path) -> Iterator[tarfile.TarFile]:
    with path.open("xb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            yield archive
        file.flush()
        os.fsync(file.fileno())
