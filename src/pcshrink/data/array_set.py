"""In-memory data sets as a whole: a few facts and four tensors make one."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pcshrink.data.arrays import ArrayEval, ArrayTrain
from pcshrink.data.augment import Normalizer
from pcshrink.data.config import DataConfig
from pcshrink.data.registry import DataSet
from pcshrink.data.source import BatchOrder, ImageData
from pcshrink.errors import ConfigError, DataError

Arrays: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Train images, train labels, test images and test labels: uint8 (N, C, H, W) and int64 (N,)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraySet:
    """What is particular to one in-memory data set; `data_set` makes an entry for the registry of it.

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
        arrays: Arrays,
        config: DataConfig,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
    ) -> ImageData:
        """Make sources of batches; the other arguments are those of `load_dataset`.

        Raises:
            DataError: The tensors are not what they should be.
        """
        self._check(arrays)
        images, labels, test_images, test_labels = (array.to(device) for array in arrays)
        order = BatchOrder(
            num_samples=len(images),
            batch_size=config.batch_size,
            seed=config.seed,
            rank=rank,
            world_size=world_size,
        )
        if config.padding is not None and config.padding >= min(images.shape[2:]):
            sides = " x ".join(map(str, images.shape[2:]))
            msg = f"padding must be less than a side of the {sides} images, got {config.padding}"
            raise ConfigError(msg)
        mean, std = config.channel_statistics(self.mean, self.std)
        normalize = Normalizer(mean, std, device)
        train = ArrayTrain(
            images=images,
            labels=labels,
            order=order,
            normalize=normalize,
            padding=self.padding if config.padding is None else config.padding,
            reflect=config.padding_mode == "reflect",
            flip=self.flip if config.flip is None else config.flip,
            cutout=config.cutout,
            channels_last=config.channels_last,
            views=config.views,
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

    def data_set(
        self,
        read: Callable[[Any], Arrays],
        *,
        needs_root: bool = False,
        takes_root: bool = True,
        description: str = "",
    ) -> DataSet:
        """The entry for the registry.

        Args:
            read: From the root folder to what `open` takes.
            needs_root: Whether there is nothing to read without a folder.
            takes_root: Whether a folder has an effect.
            description: One line.
        """

        def load(root: Any, config: DataConfig, *, rank: int, world_size: int, device: torch.device | str) -> ImageData:
            return self.open(read(root), config, rank, world_size, device)

        options = ("padding", "padding_mode", "cutout")
        return DataSet(
            name=self.name, load=load, needs_root=needs_root, takes_root=takes_root, options=options,
            description=description,
        )  # fmt: skip

    def _check(self, arrays: Arrays) -> None:
        for part, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
            if images.dtype != torch.uint8 or images.dim() != 4 or labels.shape != images.shape[:1]:
                msg = (
                    f"the {part} images of {self.name!r} must be uint8 (N, C, H, W) with N labels, got {images.dtype} "
                    f"{tuple(images.shape)} with labels {tuple(labels.shape)}"
                )
                raise DataError(msg)
            if labels.dtype != torch.int64 or (
                len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes)
            ):
                msg = f"the {part} labels of {self.name!r} must be int64 from 0 to {len(self.classes) - 1}"
                raise DataError(msg)
