"""What lies where in a shard: a plain tar of images and labels, read once and remembered.

With the place of every image known, a shard is read like a folder: any image at any time, so that order, resuming and
sharing are the same.
"""

import contextlib
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pcshrink.common.files import write_bytes
from pcshrink.data.folder_scan import EXTENSIONS
from pcshrink.errors import CheckpointError, DataError

COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_VERSION = 1  # of the remembered form
_MOST_LABEL_BYTES = {"cls": 1_000, "json": 1_000_000}
_MOST_IMAGE_BYTES = 1_000_000_000
_LABEL_FIELDS = ("label", "cls")


class Entry(NamedTuple):
    """An image in a shard.

    Attributes:
        name: Of the member.
        offset: Where its bytes begin.
        size: How many there are.
        label: As the shard states it.
    """

    name: str
    offset: int
    size: int
    label: int


def index_shard(shard: Path) -> list[Entry]:
    """The images of a shard, in its order, remembered from an earlier time if it has not changed since.

    Raises:
        DataError: It is damaged, compressed, or not a shard of images with a label each.
    """
    place = _memory_of(shard)
    known = _recall(place) if place is not None else None
    if known is not None:
        return known
    entries = _read(shard)
    if place is not None:
        with contextlib.suppress(CheckpointError):  # without a place to remember it, it is read again next time
            write_bytes(place, [json.dumps(entries).encode()])
    return entries


def key_and_field(name: str) -> tuple[str, str]:
    """Split a member's name at the first dot after the last slash, as WebDataset does.

    Example:
        >>> key_and_field("cat.d/0001.seg.png")
        ('cat.d/0001', 'seg.png')
    """
    folder, slash, base = name.rpartition("/")
    stem, _, field = base.partition(".")
    return folder + slash + stem, field.lower()


def _memory_of(shard: Path) -> Path | None:
    """The file that remembers this state of this shard; None where users have no place for such files."""
    try:
        state = shard.stat()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except (OSError, RuntimeError):
        return None
    words = f"{_VERSION}\n{shard.resolve()}\n{state.st_size}\n{state.st_mtime_ns}"
    return cache / "pcshrink" / "shards" / f"{hashlib.sha256(words.encode(errors='replace')).hexdigest()[:32]}.json"


def _recall(place: Path) -> list[Entry] | None:
    """What was remembered, if it is whole."""
    try:
        rows = json.loads(place.read_bytes())
        entries = [Entry(*row) for row in rows]
    except (OSError, ValueError, TypeError):
        return None
    whole = all(isinstance(e.name, str) and all(type(n) is int and n >= 0 for n in e[1:3]) for e in entries)
    return entries if whole and all(type(e.label) is int for e in entries) else None


def _read(shard: Path) -> list[Entry]:
    try:
        with shard.open("rb") as file:
            _refuse_compressed(shard, file.read(2))
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:") as archive:
                images, labels = _members(shard, archive)
                file.seek(archive.offset)
                # The reader takes whatever it does not understand for the end.
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    _refuse(shard, f"is damaged or cut off at byte {archive.offset}; copy it again")
    except DataError:
        raise
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError, RecursionError) as error:
        msg = f"the shard {shard} cannot be read or is cut off: {' '.join(str(error).split())}; copy it again"
        raise DataError(msg) from error
    return _entries(shard, images, labels)


def _refuse(shard: Path, what: str) -> None:
    msg = f"the shard {shard} {what}"
    raise DataError(msg)


def _refuse_compressed(shard: Path, begin: bytes) -> None:
    if begin in COMPRESSED:
        _refuse(
            shard,
            f"is compressed ({COMPRESSED[begin]}); images in it cannot be found without reading all before them: "
            "unpack it to a plain .tar, which is hardly larger",
        )


def _members(shard: Path, archive: tarfile.TarFile) -> tuple[dict[str, tarfile.TarInfo], dict[str, int]]:
    """The images and the labels by key."""
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, dict[str, int | None]] = {"cls": {}, "json": {}}
    for member in _plain_members(shard, archive):
        key, field = key_and_field(member.name)
        if f".{field}" in EXTENSIONS:
            if key in images:
                _refuse(shard, f"has two images with the key {key!r}: {images[key].name} and {member.name}")
            images[key] = member
        elif field in labels:
            if key in labels[field]:
                _refuse(shard, f"has {member.name} twice")
            labels[field][key] = _label(shard, archive, member, field)
    return images, {key: label for key, label in (labels["json"] | labels["cls"]).items() if label is not None}


def _entries(shard: Path, images: dict[str, tarfile.TarInfo], labels: dict[str, int]) -> list[Entry]:
    for key in images:
        if key not in labels:
            _refuse(shard, f"has no label for {images[key].name}: expected {key}.cls, or a label in {key}.json")
    for key in labels:
        if key not in images:
            _refuse(shard, f"has a label but no image for the key {key!r} (images end in {' '.join(EXTENSIONS)})")
    return [Entry(m.name, m.offset_data, m.size, labels[key]) for key, m in images.items()]


def _plain_members(shard: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The files in a shard; nothing is ever unpacked, but what only an attack or a mistake makes is refused."""
    for member in archive:
        name = member.name
        if not name.isprintable() or name.startswith("/") or ".." in name.split("/"):
            _refuse(shard, f"has a member with the unsafe name {name!r}; make it again from files you trust")
        if member.isdir() or name.rpartition("/")[2].startswith("."):  # the latter are left by other systems
            continue
        if not member.isreg() or member.issparse():
            _refuse(shard, f"has the member {name}, which is a link or another special file; put the file itself in it")
        if not 0 <= member.size <= _MOST_IMAGE_BYTES:
            _refuse(shard, f"has the member {name} of {member.size} bytes; an image has at most {_MOST_IMAGE_BYTES}")
        yield member


def _label(shard: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, field: str) -> int | None:
    """The label that a member states; None where it is about other things."""
    if member.size > _MOST_LABEL_BYTES[field]:
        _refuse(
            shard, f"has the label {member.name} of {member.size} bytes; at most {_MOST_LABEL_BYTES[field]} are read"
        )
    source = archive.extractfile(member)
    content = source.read() if source is not None else b""
    try:
        stated: Any = int(content) if field == "cls" else _described(json.loads(content))
    except (ValueError, RecursionError):
        stated = content[:40]
    if stated is not None and type(stated) is not int:
        _refuse(shard, f"has the label {stated!r} in {member.name}; a label is a whole number")
    return None if stated is None else int(stated)


def _described(content: object) -> Any:
    """The label in a JSON object; the first field of those in use."""
    fields = [content[name] for name in _LABEL_FIELDS if name in content] if isinstance(content, dict) else []
    return fields[0] if fields else None
