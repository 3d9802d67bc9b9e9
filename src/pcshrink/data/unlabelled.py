"""Folders of images without labels: a network is to label them."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from pcshrink.data.config import DataConfig
from pcshrink.data.folder_scan import EXTENSIONS, FolderFiles, ImageFiles, images_below
from pcshrink.data.imagefolder import for_evaluation, open_files
from pcshrink.data.registry import DataSet
from pcshrink.data.source import ImageData, Unlabelled, derive_seed
from pcshrink.errors import DataError


def load_unlabelled(
    root: str | Path,
    config: DataConfig,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """Open a folder of images as `scan_unlabelled` finds them; the arguments are those of `load_dataset`.

    Raises:
        DataError: There are no images, or too few to hold any out.
    """
    files = scan_unlabelled(root, holdout=config.holdout, seed=config.split_seed)
    first = len(files.train.paths)

    def answered(labels: Sequence[int], num_classes: int) -> ImageData:
        names = tuple(str(number) for number in range(num_classes))
        train = ImageFiles(files.train.paths, tuple(labels[:first]), names)
        val = ImageFiles(files.val.paths, tuple(labels[first:]), names)
        data = open_files(
            FolderFiles(train, val), config, name="unlabelled", rank=rank, world_size=world_size, device=device
        )
        # That some classes have few images is no fault of images that nobody has sorted.
        return dataclasses.replace(data, taught=True, notes=())

    everything = ImageFiles(files.train.paths + files.val.paths, files.train.labels + files.val.labels, ())
    images = for_evaluation(everything, config, device=device).val
    # The labels are no labels yet, so these sources are only good for counting images.
    data = open_files(files, config, name="unlabelled", rank=rank, world_size=world_size, device=device)
    notes = (files.note,) if files.note else ()
    return dataclasses.replace(data, notes=notes, unlabelled=Unlabelled(images=images, answered=answered))


UNLABELLED = DataSet(
    name="unlabelled",
    load=load_unlabelled,
    needs_root=True,
    options=("image_size", "resize_size", "rand_augment", "least_crop", "interpolation", "holdout", "split_seed"),
    own_statistics=False,
    description="any folder of images, at any depth; the network that is to shrink labels them",
)


def scan_unlabelled(root: str | Path, *, holdout: float = 0.2, seed: int = 0) -> FolderFiles:
    """The images to train on and those held out: of `val` if there is such a folder beside `train`, else a share.

    Raises:
        DataError: There are no images, or too few to hold any out.
    """
    root = Path(root)
    if not root.is_dir():
        message = f"the image folder {root} does not exist"
        raise DataError(message)
    if (root / "train").is_dir() and (root / "val").is_dir():
        return FolderFiles(_plain(root / "train"), _plain(root / "val"))
    files = _plain(root)
    places = range(len(files.paths))
    drawn = sorted(places, key=lambda i: derive_seed(seed, "holdout", os.path.relpath(files.paths[i], root)))
    held = set(drawn[: max(round(holdout * len(drawn)), 1)])
    if len(held) >= len(drawn):
        message = f"{root} has {len(drawn)} images: too few to hold any out; add images"
        raise DataError(message)
    note = (
        f"{len(held)} of the {len(drawn)} images in {root} are held out for evaluation, {holdout:.0%}, "
        f"chosen by seed {seed}"
    )
    return FolderFiles(files.only([i for i in places if i not in held]), files.only(sorted(held)), note)


def has_class_folders(root: Path) -> bool:
    """Whether the images lie in folders rather than loose."""
    home = root / "train" if (root / "train").is_dir() else root
    return home.is_dir() and not any(e.suffix.lower() in EXTENSIONS for e in home.iterdir() if e.is_file())


def _plain(folder: Path) -> ImageFiles:
    paths = tuple(sorted(images_below(folder)))
    if not paths:
        message = f"there are no images in {folder} ({' '.join(sorted(EXTENSIONS))})"
        raise DataError(message)
    return ImageFiles(paths, (0,) * len(paths), ())
