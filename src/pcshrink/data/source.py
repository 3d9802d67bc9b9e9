"""What a trainer gets: sources of batches, and the order in which training samples come."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import ConfigError, DataError

Batch = tuple[Tensor, Tensor]
"""Images, float32 (B, C, H, W) normalised, and labels, int64 (B,)."""


class TrainSource(Protocol):
    """Augmented training batches that depend on the seed, the epoch and the batch number only."""

    @property
    def num_samples(self) -> int:
        """Training images in the whole set."""
        ...

    def __len__(self) -> int:
        """Number of global batches in an epoch, all of the same size."""
        ...

    def batches(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Yield this process's share of every global batch from `start_batch` on."""
        ...


class NoTraining:
    """Stands for the training images where only the evaluation was opened."""

    num_samples = 0

    def __len__(self) -> int:
        return 0

    def batches(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Refuse.

        Raises:
            DataError: Always.
        """
        msg = "this data set was opened for evaluation only"
        raise DataError(msg)


class EvalSource(Protocol):
    """Evaluation batches: every image once, in order, without augmentation."""

    @property
    def num_samples(self) -> int:
        """Images in the whole set, over all processes."""
        ...

    def __len__(self) -> int:
        """Number of batches this process gets."""
        ...

    def batches(self) -> Iterator[Batch]:
        """Yield this process's part of the set; the parts of all processes make up the set."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Images that a network must label, before anything can be learned from them or measured on them.

    Attributes:
        images: All of them, those for training first, as they are shown in an evaluation; its labels mean nothing.
        answered: From a label for each of them, and the number of classes, to the data with these labels.
    """

    images: EvalSource
    answered: Callable[[Sequence[int], int], "ImageData"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageData:
    """A data set ready for training.

    Attributes:
        name: The name it was loaded by.
        classes: Names of the classes; a label is an index into them.
        input_shape: Channels, height and width of one image.
        mean: Per-channel mean the images were normalised with, on the scale 0 to 1.
        std: Per-channel deviation the images were normalised with, on the scale 0 to 1.
        resize: Length of the shorter side before the centre crop; 0 where images are not cropped.
        interpolation: How images are resized.
        notes: What a user should know about the data, in words.
        train: Training batches.
        val: Evaluation batches (test set of CIFAR-10 and digits, `val` folder of images).
        unlabelled: What to do about labels, where there are none; the labels in batches mean nothing until then.
        taught: The labels are the answers of a network.
    """

    name: str
    classes: tuple[str, ...]
    input_shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train: TrainSource
    val: EvalSource
    resize: int = 0
    interpolation: str = "bilinear"
    notes: tuple[str, ...] = ()
    unlabelled: "Unlabelled | None" = None
    taught: bool = False

    @property
    def preprocessing(self) -> Preprocessing:
        """How an evaluation image became what the network saw."""
        return Preprocessing(
            input_size=self.input_shape, mean=self.mean, std=self.std, resize=self.resize,
            interpolation=self.interpolation, classes=self.classes,
        )  # fmt: skip

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)


def derive_seed(*parts: int | str) -> int:
    """Mix the parts into one seed of 63 bits, the same on every machine.

    Example:
        >>> derive_seed(0, 1) == derive_seed(0, 1), derive_seed(0, 1) == derive_seed(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def split_evenly(num_samples: int, rank: int, world_size: int) -> range:
    """Return the contiguous part of `num_samples` that belongs to `rank`.

    Example:
        >>> [list(split_evenly(5, rank, 2)) for rank in range(2)]
        [[0, 1], [2, 3, 4]]
    """
    return range(num_samples * rank // world_size, num_samples * (rank + 1) // world_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchOrder:
    """Which sample comes when: a pure function of seed, epoch and batch number.

    Augmentations are drawn for the whole epoch, one entry per *position* in it. So a batch is the same
    whether the epoch was run from its start or resumed, and however many processes share it.

    All batches are whole, so that all steps are alike. What is left over of an epoch is left out where it is at most a
    twentieth of the images; otherwise the last batch is filled up with images from the beginning of the epoch.

    Raises:
        ConfigError: The processes cannot share a batch evenly, or `rank` is impossible.
        DataError: There are fewer samples than a batch needs.
    """

    num_samples: int
    batch_size: int
    seed: int
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            msg = f"rank must be at least 0 and below world_size, got rank {self.rank} of {self.world_size}"
            raise ConfigError(msg)
        if self.batch_size % self.world_size:
            msg = (
                f"batch_size {self.batch_size} cannot be shared evenly by {self.world_size} processes; "
                f"take a multiple of {self.world_size}"
            )
            raise ConfigError(msg)
        if self.num_samples < self.batch_size:
            msg = (
                f"batch_size {self.batch_size} is larger than the {self.num_samples} training images; "
                "take a smaller one"
            )
            raise DataError(msg)

    def __len__(self) -> int:
        return self.positions // self.batch_size

    @property
    def positions(self) -> int:
        """Places in an epoch: the images, and some of them again to fill the last batch."""
        left_over = self.num_samples % self.batch_size
        return self.num_samples + (self.batch_size - left_over if 20 * left_over > self.num_samples else 0)

    def generator(self, epoch: int, stream: str) -> torch.Generator:
        """Return a fresh CPU generator for one purpose in one epoch."""
        return torch.Generator().manual_seed(derive_seed(self.seed, epoch, stream))

    def permutation(self, epoch: int) -> Tensor:
        """Return the sample index at every position of the epoch."""
        order = torch.randperm(self.num_samples, generator=self.generator(epoch, "order"))
        return torch.cat([order, order[: self.positions - self.num_samples]])

    def shares(self, start_batch: int) -> Iterator[slice]:
        """Yield the positions of this process's share of every batch from `start_batch` on."""
        share = self.batch_size // self.world_size
        for batch in range(start_batch, len(self)):
            begin = batch * self.batch_size + self.rank * share
            yield slice(begin, begin + share)

    def check_position(self, epoch: int, start_batch: int) -> None:
        """Refuse a place in the training that does not exist.

        Raises:
            ConfigError: The epoch is negative, or the epoch has no such batch.
        """
        if epoch < 0 or not 0 <= start_batch <= len(self):
            msg = (
                f"no batch {start_batch} in epoch {epoch}: epochs count from 0 and have {len(self)} batches "
                f"({self.num_samples} images, {self.batch_size} a batch); "
                "was the batch size changed since the checkpoint?"
            )
            raise ConfigError(msg)
