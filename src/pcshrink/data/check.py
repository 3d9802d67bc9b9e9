"""Looks at a folder of images, or at shards, before anybody trains on it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pcshrink.common.progress import track
from pcshrink.data.class_order import ClassOrder
from pcshrink.data.config import DataConfig
from pcshrink.data.decode import BrokenImage, Span, open_image, read_bytes, usable_cores
from pcshrink.data.folder_scan import FolderFiles, scan_folder
from pcshrink.data.shard_scan import looks_like_shards, scan_shards

FEW_IMAGES = 20  # of a class; below, a class is hardly learned
UNEVEN = 10  # times as many images in the largest class as in the smallest


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderCheck:
    """What is in a folder of images.

    Attributes:
        classes: Names of the classes.
        train: Images to train on, for each class.
        val: Images to evaluate on, for each class.
        smallest: Width and height of the image with the shortest side.
        broken: Images that cannot be decoded.
        shared: Validation images that are also training images, byte by byte.
        notes: What is worth knowing, in words.
    """

    classes: tuple[str, ...]
    train: tuple[int, ...]
    val: tuple[int, ...]
    smallest: tuple[int, int]
    broken: tuple[BrokenImage, ...]
    shared: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether a training can start, and its evaluation means something."""
        return not self.broken and not self.shared


def check_images(root: str | Path, *, progress: bool = True) -> list[BrokenImage]:
    """Decode every image of a folder, and return those that fail.

    Args:
        root: See `scan_folder`.
        progress: Show a progress bar on a terminal, plain lines elsewhere.

    Raises:
        DataError: The folder is not laid out as expected.
    """
    return list(check_folder(root, progress=progress).broken)


def check_folder(root: str | Path, order: ClassOrder | None = None, *, progress: bool = True) -> FolderCheck:
    """Decode every image of a folder or of shards, count, and look for what makes a training or an evaluation go wrong.

    Args:
        root: See `scan_folder` and `scan_shards`.
        order: Which class belongs to which output; by default the class folders are sorted.
        progress: Show a progress bar on a terminal, plain lines elsewhere.

    Raises:
        DataError: The folder is not laid out as expected.
    """
    shards = looks_like_shards(root)
    files = scan_shards(root, order, progress=progress) if shards else scan_folder(root, order)
    looked = _look(files, progress)
    train_hashes = {looked[path].digest for path in files.train.paths}
    counts = [Counter(part.labels) for part in (files.train, files.val)]
    classes = range(len(files.train.classes))
    train, val = (tuple(count[label] for label in classes) for count in counts)
    return FolderCheck(
        classes=files.train.classes,
        train=train,
        val=val,
        smallest=min((each.size for each in looked.values() if each.broken is None), key=min, default=(0, 0)),
        broken=tuple(each.broken for each in looked.values() if each.broken is not None),
        shared=tuple(path for path in files.val.paths if looked[path].digest in train_hashes),
        notes=(
            *((files.note,) if files.note else ()),
            *count_notes(files.train.classes, train),
            *_batch_note(sum(train)),
        ),
    )


def count_notes(classes: tuple[str, ...], counts: tuple[int, ...]) -> list[str]:
    """What the numbers of training images say about a training."""
    seen = {name: count for name, count in zip(classes, counts, strict=True) if count}
    if not seen:
        return []
    notes = []
    least, most = min(seen, key=lambda name: seen[name]), max(seen, key=lambda name: seen[name])
    if seen[least] < FEW_IMAGES:
        few = sum(count < FEW_IMAGES for count in seen.values())
        notes.append(
            f"{few} of {len(seen)} classes have fewer than {FEW_IMAGES} training images ({least}: {seen[least]})"
        )
    if seen[most] > UNEVEN * seen[least]:
        notes.append(f"the classes are uneven: {seen[most]} training images of {most}, {seen[least]} of {least}")
    return notes


def _batch_note(images: int) -> list[str]:
    """What a recipe must say, or the run will not start."""
    usual = DataConfig().batch_size
    return [f"a batch has {usual} images by default; set data.batch_size to {images} or less"] if images < usual else []


@dataclasses.dataclass(frozen=True)
class _Look:
    digest: bytes
    size: tuple[int, int]
    broken: BrokenImage | None


def _look(files: FolderFiles, progress: bool) -> dict[str, _Look]:
    paths = (*files.train.paths, *files.val.paths)
    spans = (*files.train.spans, *files.val.spans) or (None,) * len(paths)
    with (
        ThreadPoolExecutor(usable_cores()) as pool,  # threads suffice: decoding releases the interpreter lock
        track(f"checking {len(paths)} images", len(paths), enabled=progress) as advance,
    ):
        looked = {}
        for path, look in zip(paths, pool.map(_look_at, paths, spans), strict=True):
            advance(1)
            looked[path] = look
    return looked


def _look_at(path: str, span: Span | None) -> _Look:
    image = open_image(path, span)
    if isinstance(image, BrokenImage):
        return _Look(path.encode(), (0, 0), image)
    return _Look(hashlib.blake2b(read_bytes(path, span), digest_size=16).digest(), image.size, None)
