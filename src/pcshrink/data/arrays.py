"""Data sets that fit in memory: uint8 tensors in, augmented float batches out, no worker processes."""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from pcshrink.data.augment import Normalizer, crop_and_flip, cutout_
from pcshrink.data.source import Batch, BatchOrder, split_evenly


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayTrain:
    """Training batches from memory.

    Attributes:
        images: uint8, (N, C, H, W).
        labels: int64, (N,), on the same device.
        order: Which sample comes when.
        normalize: From uint8 to float32.
        padding: See `DataConfig`.
        reflect: Pad by the mirrored image instead of zeros.
        flip: See `DataConfig`.
        cutout: See `DataConfig`.
        channels_last: See `DataConfig`.
        views: Show every image in this many random ways only, in turn by epoch; 0: in a new one every time.
    """

    images: Tensor
    labels: Tensor
    order: BatchOrder
    normalize: Normalizer
    padding: int = 0
    reflect: bool = False
    flip: bool = False
    cutout: int = 0
    channels_last: bool = False
    views: int = 0

    @property
    def num_samples(self) -> int:
        """Training images in the whole set."""
        return self.order.num_samples

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Yield this process's share of every global batch from `start_batch` on.

        Raises:
            ConfigError: There is no such epoch or batch.
        """
        self.order.check_position(epoch, start_batch)
        return self._generate(epoch, start_batch)

    def _generate(self, epoch: int, start_batch: int) -> Iterator[Batch]:
        device = self.images.device
        order = self.order.permutation(epoch)
        # Drawn on the CPU on every device, so that a run does not depend on where it runs.
        draws = self._draw(self.view(epoch))
        if self.views:
            draws = tuple(draw[order] for draw in draws)  # a view is that of an image, not of a place in the epoch
        samples, (offsets, flips, centres) = order.to(device), (draw.to(device) for draw in draws)
        for share in self.order.shares(start_batch):
            images = self.images.index_select(0, samples[share])
            if self.padding or self.flip:
                images = crop_and_flip(images, offsets[share], flips[share], self.padding, reflect=self.reflect)
            images = self.normalize(images)
            if self.cutout:
                cutout_(images, centres[share], self.cutout)
            yield _laid_out(images, self.channels_last), self.labels.index_select(0, samples[share])

    def view(self, epoch: int) -> int:
        """Which of the views the images of an epoch are shown in."""
        return epoch % self.views if self.views else epoch

    def samples(self, epoch: int, batch: int) -> Tensor:
        """Which images this process's share of a batch holds."""
        return self.order.permutation(epoch)[next(self.order.shares(batch))]

    def _draw(self, epoch: int) -> tuple[Tensor, ...]:
        """Draw crop offsets, flips and cutout centres for every position of the epoch."""
        count, height, width = self.order.positions, *self.images.shape[2:]
        generator = self.order.generator(epoch, "crop")
        offsets = torch.randint(0, 2 * self.padding + 1, (count, 2), generator=generator)
        flips = torch.rand(count, generator=self.order.generator(epoch, "flip")) < (0.5 if self.flip else 0.0)
        generator = self.order.generator(epoch, "cutout")
        centres = [torch.randint(0, length, (count,), generator=generator) for length in (height, width)]
        return offsets, flips, torch.stack(centres, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayEval:
    """Evaluation batches from memory.

    Attributes:
        images: uint8, (N, C, H, W).
        labels: int64, (N,), on the same device.
        batch_size: Images in one batch of one process.
        normalize: From uint8 to float32.
        rank: This process.
        world_size: How many processes share the set.
        channels_last: See `DataConfig`.
    """

    images: Tensor
    labels: Tensor
    batch_size: int
    normalize: Normalizer
    rank: int = 0
    world_size: int = 1
    channels_last: bool = False

    @property
    def num_samples(self) -> int:
        """Images in the whole set, over all processes."""
        return len(self.labels)

    def __len__(self) -> int:
        return len(self._starts())

    def batches(self) -> Iterator[Batch]:
        """Yield this process's part of the set, in order, without augmentation."""
        stop = self._part().stop
        for start in self._starts():
            span = slice(start, min(start + self.batch_size, stop))
            yield _laid_out(self.normalize(self.images[span]), self.channels_last), self.labels[span]

    def _part(self) -> range:
        return split_evenly(self.num_samples, self.rank, self.world_size)

    def _starts(self) -> range:
        part = self._part()
        return range(part.start, part.stop, self.batch_size)


def _laid_out(images: Tensor, channels_last: bool) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last) if channels_last else images
