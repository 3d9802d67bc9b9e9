"""From the name of a data set to its batches."""

import dataclasses
import difflib
from pathlib import Path

import torch
from torch import Tensor

from pcshrink.data.arrays import ArrayEval, ArrayTrain
from pcshrink.data.augment import Normalizer
from pcshrink.data.cifar10.prepare import CIFAR10_CLASSES, CIFAR10_MEAN, CIFAR10_STD, load_cifar10
from pcshrink.data.config import DataConfig
from pcshrink.data.digits import DIGITS_CLASSES, DIGITS_MEAN, DIGITS_STD, load_digits
from pcshrink.data.imagefolder import load_folder
from pcshrink.data.source import BatchOrder, ImageData
from pcshrink.errors import ConfigError

DATASETS = ("digits", "cifar10", "folder")


def load_dataset(
    name: str,
    root: str | Path | None = None,
    config: DataConfig | None = None,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """Load a data set by name.

    Args:
        name: `"digits"` (comes with the package), `"cifar10"` (see `prepare_cifar10`) or `"folder"`
            (`root/train/CLASS/*` and `root/val/CLASS/*`).
        root: Folder of the data; digits need none.
        config: How batches are made.
        rank: This process.
        world_size: How many processes share every global batch and the evaluation.
        device: Where batches are delivered. In-memory sets live there and are augmented there.

    Raises:
        ConfigError: The name is unknown, or an option does not fit the data set.
        DataError: The data are missing or damaged.

    Example:
        >>> data = load_dataset("digits", config=DataConfig(batch_size=32))
        >>> data.num_classes, data.input_shape, len(data.train), data.val.num_samples
        (10, (1, 16, 16), 44, 360)
        >>> images, labels = next(data.train.batches(epoch=3, start_batch=7))
        >>> images.shape, labels.shape
        (torch.Size([32, 1, 16, 16]), torch.Size([32]))
    """
    config = config or DataConfig()
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(DATASETS)}"
        msg = f"unknown data set {name!r}, {hint}"
        raise ConfigError(msg)
    config.refuse_options_without_effect(name, folder=name == "folder")
    if name == "digits":
        return DIGITS.open(load_digits(), config, rank, world_size, device)
    if root is None:
        msg = f"the data set {name!r} needs a root folder"
        raise ConfigError(msg)
    if name == "cifar10":
        return CIFAR10.open(load_cifar10(root), config, rank, world_size, device)
    return load_folder(root, config, rank=rank, world_size=world_size, device=device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraySet:
    """What is particular to one in-memory data set.

    Attributes:
        name: Of the data set.
        classes: Names of the classes.
        mean: Per channel, of the training images on the scale 0 to 1.
        std: Per channel, of the training images on the scale 0 to 1.
        padding: Usual padding of random crops.
        flip: Whether mirrored images make sense.
    """

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool

    def open(
        self,
        arrays: tuple[Tensor, Tensor, Tensor, Tensor],
        config: DataConfig,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
    ) -> ImageData:
        """Make sources of batches from uint8 train images, train labels, test images and test labels."""
        images, labels, test_images, test_labels = (array.to(device) for array in arrays)
        order = BatchOrder(
            num_samples=len(images),
            batch_size=config.batch_size,
            seed=config.seed,
            rank=rank,
            world_size=world_size,
        )
        mean, std = config.channel_statistics(self.mean, self.std)
        normalize = Normalizer(mean, std, device)
        train = ArrayTrain(
            images=images,
            labels=labels,
            order=order,
            normalize=normalize,
            padding=self.padding if config.padding is None else config.padding,
            flip=self.flip if config.flip is None else config.flip,
            cutout=config.cutout,
            channels_last=config.channels_last,
        )
        val = ArrayEval(
            images=test_images,
            labels=test_labels,
            batch_size=config.eval_batch_size,
            normalize=normalize,
            rank=rank,
            world_size=world_size,
            channels_last=config.channels_last,
        )
        channels, height, width = images.shape[1:]
        shape = (channels, height, width)
        return ImageData(
            name=self.name, classes=self.classes, input_shape=shape, mean=mean, std=std, train=train, val=val
        )


DIGITS = ArraySet(name="digits", classes=DIGITS_CLASSES, mean=DIGITS_MEAN, std=DIGITS_STD, padding=1, flip=False)
CIFAR10 = ArraySet(name="cifar10", classes=CIFAR10_CLASSES, mean=CIFAR10_MEAN, std=CIFAR10_STD, padding=4, flip=True)
