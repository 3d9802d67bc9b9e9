"""Finds the images of a folder with a folder for each class, and says what is wrong with it."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pcshrink.data.class_order import ClassOrder
from pcshrink.data.decode import Span
from pcshrink.data.source import derive_seed
from pcshrink.errors import DataError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_LAYOUT = "expected root/train/CLASS/image.jpg and root/val/CLASS/image.jpg, or root/CLASS/image.jpg"
_SPLITS = ("train", "val")
_NAMES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """The images of one split.

    Attributes:
        paths: Files, sorted within sorted classes.
        labels: Index into `classes` of every file.
        classes: Names of the classes: of the folders, sorted, or of the network's outputs.
        spans: Where each image lies, if they have no files of their own; `paths` is what they are called then.
    """

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    spans: tuple[Span, ...] = ()

    def only(self, indices: list[int]) -> "ImageFiles":
        """Some of the images."""
        return ImageFiles(
            tuple(self.paths[i] for i in indices), tuple(self.labels[i] for i in indices), self.classes,
            tuple(self.spans[i] for i in indices) if self.spans else (),
        )  # fmt: skip

    def span(self, index: int) -> Span | None:
        """Where an image lies, if it has no file of its own."""
        return self.spans[index] if self.spans else None


@dataclasses.dataclass(frozen=True)
class FolderFiles:
    """The images of a folder.

    Attributes:
        train: For training.
        val: For evaluation.
        note: How they were told apart, where the folder does not say it.
    """

    train: ImageFiles
    val: ImageFiles
    note: str = ""


def scan_folder(
    root: str | Path, order: ClassOrder | None = None, *, holdout: float = 0.2, seed: int = 0
) -> FolderFiles:
    """Return the training and the validation images under `root`.

    Args:
        root: `root/train/CLASS/*` and `root/val/CLASS/*`; or, to be split by seed, `root/train/CLASS/*` alone or
            `root/CLASS/*`.
        order: Which class belongs to which output; by default the class folders are sorted.
        holdout: Where there is no `val`: the share of every class that is held out.
        seed: Where there is no `val`: which images these are.

    Raises:
        DataError: A folder is missing or empty, or `train` and `val` have different classes.
    """
    train, val, where = scan_parts(root, order)
    if val is not None:
        return FolderFiles(train, val)
    return hold_out(train, [os.path.relpath(path, where) for path in train.paths], where, holdout, seed)


def scan_parts(root: str | Path, order: ClassOrder | None = None) -> tuple[ImageFiles, ImageFiles | None, Path]:
    """The training images, the validation images if they stand apart, and the folder of the former.

    Raises:
        DataError: As `scan_folder`.
    """
    root = _existing(root)
    present = _folders(root)
    if "val" in present or (len(present) > 1 and "train" in present):
        train, val = (_scan_split(root / name, order) for name in _SPLITS)
        if order is None and train.classes != val.classes:
            _refuse_classes(root, train, val)
        return train, val, root / "train"
    whole = root / "train" if "train" in present else root
    return _scan_split(whole, order), None, whole


def scan_evaluation(root: str | Path, order: ClassOrder | None = None) -> ImageFiles:
    """Return the images to evaluate on: those of `root/val/CLASS/*`, or else of `root/CLASS/*`.

    Raises:
        DataError: There are none, or only some to train on.
    """
    root = _existing(root)
    present = _folders(root)
    if "train" in present and "val" not in present:
        message = f"{root} has images to train on and no val; to evaluate on all of them, name {root / 'train'}"
        raise DataError(message)
    return _scan_split(root / "val" if "val" in present else root, order)


def _existing(root: str | Path) -> Path:
    root = Path(root)
    if not root.is_dir():
        msg = f"the image folder {root} does not exist; {_LAYOUT}"
        raise DataError(msg)
    return root


def _folders(folder: Path) -> list[str]:
    try:
        return sorted(e.name for e in folder.iterdir() if e.is_dir() and not e.name.startswith("."))
    except OSError as error:
        msg = f"cannot read the image folder {folder}: {error}"
        raise DataError(msg) from error


def _refuse_classes(root: Path, train: ImageFiles, val: ImageFiles) -> None:
    only_train = _some(set(train.classes) - set(val.classes))
    only_val = _some(set(val.classes) - set(train.classes))
    msg = (
        f"{root / 'train'} and {root / 'val'} have different classes: only in train: {only_train}; "
        f"only in val: {only_val}; make the class folders agree"
    )
    raise DataError(msg)


def hold_out(files: ImageFiles, names: Sequence[str], where: Path, share: float, seed: int) -> FolderFiles:
    """Hold out a share of every class; which images depends on the seed and their names, not on their number.

    Args:
        files: All images.
        names: What each is called, wherever the folder is.
        where: The folder, for messages.
        share: Of every class.
        seed: Which images these are.

    Raises:
        DataError: There is one class only, or one image a class.
    """
    if len(set(files.labels)) < 2:
        only = _some({files.classes[label] for label in files.labels})
        msg = f"{where} has images of one class only ({only}); two or more are needed"
        raise DataError(msg)
    held: set[int] = set()
    for label in set(files.labels):
        own = [index for index, each in enumerate(files.labels) if each == label]
        own.sort(key=lambda index: derive_seed(seed, "holdout", names[index]))
        held.update(own[: max(round(share * len(own)), 1) if len(own) > 1 else 0])
    if not held:
        msg = f"{where} has one image a class: too few to hold any out; add images, or a val part"
        raise DataError(msg)
    everything = range(len(files.paths))
    note = (
        f"there is no val part: {len(held)} of the {len(files.paths)} images in {where} are held out for "
        f"evaluation, {share:.0%} of every class, chosen by seed {seed}"
    )
    train = files.only([index for index in everything if index not in held])
    return FolderFiles(train, files.only(sorted(held)), note)


def _scan_split(folder: Path, order: ClassOrder | None) -> ImageFiles:
    if not folder.is_dir():
        msg = f"the folder {folder} is missing (found: {_some(set(_folders(folder.parent)))}); {_LAYOUT}"
        if folder.name == "val":
            msg += "; with train alone, a part of it is held out"
        raise DataError(msg)
    names = tuple(_folders(folder))
    if not names:
        loose = any(e.suffix.lower() in EXTENSIONS for e in folder.iterdir())
        what = "images but no class folders" if loose else "no class folders"
        msg = f"{folder} has {what}; {_LAYOUT}"
        raise DataError(msg)
    paths: list[str] = []
    labels: list[int] = []
    empty = []
    for place, name in enumerate(names):
        images = sorted(images_below(folder / name))
        if not images:
            empty.append(name)
        paths += images
        labels += [place if order is None else order.number(name, f"the folder {folder / name}")] * len(images)
    if empty:
        what = "there are no images at all in" if not paths else "there are classes without images in"
        msg = (
            f"{what} {folder} (empty class folders: {_some(set(empty))}); remove these folders or add images "
            f"({' '.join(sorted(EXTENSIONS))})"
        )
        raise DataError(msg)
    return ImageFiles(tuple(paths), tuple(labels), names if order is None else order.names)


def images_below(folder: Path) -> Iterator[str]:
    """All images in a folder and the folders in it."""
    seen = set()
    for where, below, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(where))
        # A link may lead back to where it stands.
        below[:] = [name for name in below if os.path.realpath(f"{where}{os.sep}{name}") not in seen]
        for name in names:
            if not name.startswith(".") and name.lower().endswith(EXTENSIONS):
                yield f"{where}{os.sep}{name}"


def _some(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown or "none"
