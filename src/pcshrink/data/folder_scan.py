"""Finds the images of an ImageNet-style folder and says what is wrong with it."""

import dataclasses
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pcshrink.common.install import install_hint
from pcshrink.common.progress import track
from pcshrink.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_LAYOUT = "expected root/train/CLASS/image.jpg and root/val/CLASS/image.jpg"
_NAMES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """The images of one split.

    Attributes:
        paths: Files, sorted within sorted classes.
        labels: Index into `classes` of every file.
        classes: Names of the class folders, sorted.
    """

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class BrokenImage:
    """An image that cannot be decoded.

    Attributes:
        path: The file.
        reason: What the decoder says.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def scan_folder(root: str | Path) -> tuple[ImageFiles, ImageFiles]:
    """Return the training and the validation images under `root`.

    Raises:
        DataError: A folder is missing or empty, or `train` and `val` have different classes.
    """
    root = Path(root)
    if not root.is_dir():
        msg = f"the image folder {root} does not exist; {_LAYOUT}"
        raise DataError(msg)
    train, val = (_scan_split(root / name) for name in ("train", "val"))
    if train.classes != val.classes:
        only_train = _some(set(train.classes) - set(val.classes))
        only_val = _some(set(val.classes) - set(train.classes))
        msg = (
            f"{root / 'train'} and {root / 'val'} have different classes: only in train: {only_train}; "
            f"only in val: {only_val}; make the class folders agree"
        )
        raise DataError(msg)
    return train, val


def check_images(root: str | Path, *, progress: bool = True) -> list[BrokenImage]:
    """Decode every image under `root/train` and `root/val`, and return those that fail.

    Args:
        root: An ImageNet-style folder.
        progress: Show a progress bar on a terminal, plain lines elsewhere.

    Raises:
        DataError: The folder is not laid out as expected.
    """
    train, val = scan_folder(root)
    paths = (*train.paths, *val.paths)
    broken = []
    with (
        ThreadPoolExecutor(usable_cores()) as pool,  # threads suffice: decoding releases the interpreter lock
        track(f"checking {len(paths)} images", len(paths), enabled=progress) as advance,
    ):
        for result in pool.map(_try_image, paths):
            advance(1)
            if result is not None:
                broken.append(result)
    return broken


def open_image(path: str) -> "Image | BrokenImage":
    """Decode an image to RGB, or say why not.

    Raises:
        DataError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        msg = f"image folders need Pillow and torchvision; install them with {install_hint('PIL')}"
        raise DataError(msg) from error
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        return BrokenImage(path, f"{type(error).__name__}: {error}")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _try_image(path: str) -> BrokenImage | None:
    image = open_image(path)
    return image if isinstance(image, BrokenImage) else None


def _scan_split(folder: Path) -> ImageFiles:
    if not folder.is_dir():
        present = _some({entry.name for entry in folder.parent.iterdir() if entry.is_dir()})
        msg = f"the folder {folder} is missing (found: {present}); {_LAYOUT}"
        raise DataError(msg)
    classes = tuple(sorted(e.name for e in folder.iterdir() if e.is_dir() and not e.name.startswith(".")))
    if not classes:
        loose = any(e.suffix.lower() in EXTENSIONS for e in folder.iterdir())
        what = "images but no class folders" if loose else "no class folders"
        msg = f"{folder} has {what}; {_LAYOUT}"
        raise DataError(msg)
    paths: list[str] = []
    labels: list[int] = []
    empty = []
    for label, name in enumerate(classes):
        images = sorted(_images_below(folder / name))
        if not images:
            empty.append(name)
        paths += images
        labels += [label] * len(images)
    if empty:
        what = "there are no images at all in" if not paths else "there are classes without images in"
        msg = (
            f"{what} {folder} (empty class folders: {_some(set(empty))}); remove these folders or add images "
            f"({' '.join(sorted(EXTENSIONS))})"
        )
        raise DataError(msg)
    return ImageFiles(tuple(paths), tuple(labels), classes)


def _images_below(folder: Path) -> Iterator[str]:
    for where, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if not name.startswith(".") and name.lower().endswith(EXTENSIONS):
                yield f"{where}{os.sep}{name}"


def _some(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown or "none"
