"""ImageNet-style folders: decoded by worker processes, the same batches whatever their number."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pcshrink.common.install import install_hint
from pcshrink.data.augment import Normalizer
from pcshrink.data.config import DataConfig
from pcshrink.data.folder_scan import BrokenImage, ImageFiles, open_image, scan_folder, usable_cores
from pcshrink.data.registry import DataSet
from pcshrink.data.source import Batch, BatchOrder, ImageData, derive_seed, split_evenly
from pcshrink.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_MOST_WORKERS = 8

Transform = Callable[["Image"], Tensor]
Key = tuple[int, int]
Sample = tuple[Tensor, int] | BrokenImage


def load_folder(
    root: str | Path,
    config: DataConfig,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """Open `root/train/CLASS/*` and `root/val/CLASS/*`; the arguments are those of `load_dataset`.

    Raises:
        DataError: The folder is not laid out as expected, or torchvision is missing.
    """
    train_files, val_files = scan_folder(root)
    order = BatchOrder(
        num_samples=len(train_files.paths),
        batch_size=config.batch_size,
        seed=config.seed,
        rank=rank,
        world_size=world_size,
    )
    mean, std = config.channel_statistics(IMAGENET_MEAN, IMAGENET_STD)
    delivery = _Delivery(
        normalize=Normalizer(mean, std, device),
        workers=min(usable_cores(), _MOST_WORKERS) if config.workers is None else config.workers,
        device=torch.device(device),
        channels_last=config.channels_last,
    )
    train = FolderTrain(_FolderSamples(train_files, _train_transform(config), config.seed), order, delivery)
    part = split_evenly(len(val_files.paths), rank, world_size)
    samples = _FolderSamples(val_files, _eval_transform(config), config.seed)
    val = FolderEval(samples, part, config.eval_batch_size, delivery)
    return ImageData(
        name="folder",
        classes=train_files.classes,
        input_shape=(3, config.image_size, config.image_size),
        mean=mean,
        std=std,
        train=train,
        val=val,
    )


FOLDER = DataSet(
    name="folder",
    load=load_folder,
    needs_root=True,
    options=("image_size", "resize_size", "rand_augment", "interpolation"),
    description="images of your own: root/train/CLASS/* and root/val/CLASS/*",
)


def _transforms() -> Any:
    try:
        from torchvision.transforms import v2
    except ImportError as error:
        msg = f"image folders need torchvision; install it with {install_hint('torchvision')}"
        raise DataError(msg) from error
    return v2


def _train_transform(config: DataConfig) -> Transform:
    v2 = _transforms()
    mode = v2.InterpolationMode(config.interpolation)
    steps = [v2.RandomResizedCrop(config.image_size, interpolation=mode, antialias=True)]
    if config.flip is not False:
        steps.append(v2.RandomHorizontalFlip())
    if config.rand_augment:
        steps.append(v2.RandAugment(interpolation=mode))
    return cast(Transform, v2.Compose([*steps, v2.PILToTensor()]))


def _eval_transform(config: DataConfig) -> Transform:
    v2 = _transforms()
    mode = v2.InterpolationMode(config.interpolation)
    resize = v2.Resize(config.resize_size, interpolation=mode, antialias=True)
    return cast(Transform, v2.Compose([resize, v2.CenterCrop(config.image_size), v2.PILToTensor()]))


class _FolderSamples(Dataset[Sample]):
    """Decoded and transformed images; a key is (image index, epoch), so a worker needs no other state."""

    def __init__(self, files: ImageFiles, transform: Transform, seed: int) -> None:
        self.files, self._transform, self._seed = files, transform, seed

    def __getitem__(self, key: Key) -> Sample:
        index, epoch = key
        image = open_image(self.files.paths[index])
        if isinstance(image, BrokenImage):
            return image
        # The transforms draw from torch's global generator: seed it for this image, and leave no trace.
        state = torch.get_rng_state()
        try:
            torch.default_generator.manual_seed(derive_seed(self._seed, epoch, index, "augment"))
            return self._transform(image), self.files.labels[index]
        finally:
            torch.set_rng_state(state)


def _collate(samples: list[Sample]) -> Batch | BrokenImage:
    """Stack the samples; hand a broken one over, as an error would reach the user as a worker's trace."""
    images, labels = [], []
    for sample in samples:
        if isinstance(sample, BrokenImage):
            return sample
        images.append(sample[0])
        labels.append(sample[1])
    return torch.stack(images), torch.tensor(labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Delivery:
    """How the batches of both splits are decoded and handed over."""

    normalize: Normalizer
    workers: int
    device: torch.device
    channels_last: bool

    def deliver(self, samples: _FolderSamples, keys: Iterable[list[Key]]) -> Iterator[Batch]:
        """Yield a batch for every list of keys."""
        loader: DataLoader[Any] = DataLoader(
            samples,
            batch_sampler=cast(Any, keys),  # anything that yields lists of keys, says torch's documentation
            collate_fn=_collate,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            # Without its own generator a loader draws from the global one, and a resumed run would differ.
            generator=torch.Generator().manual_seed(0),
        )
        for batch in loader:
            if isinstance(batch, BrokenImage):
                msg = (
                    f"cannot decode the image {batch}; replace or remove it "
                    "(pcshrink.data.check_images(root) lists all broken ones)"
                )
                raise DataError(msg)
            # Bytes, not floats, cross the process border; the rest is done here, on the device.
            images, labels = (part.to(self.device, non_blocking=True) for part in batch)
            images = self.normalize(images)
            if self.channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            yield images, labels


class FolderTrain:
    """Augmented training batches from image files."""

    def __init__(self, samples: _FolderSamples, order: BatchOrder, delivery: _Delivery) -> None:
        self._samples, self._order, self._delivery = samples, order, delivery

    @property
    def num_samples(self) -> int:
        """Training images in the whole set."""
        return self._order.num_samples

    def __len__(self) -> int:
        return len(self._order)

    def batches(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Yield this process's share of every global batch from `start_batch` on.

        Raises:
            ConfigError: There is no such epoch or batch.
            DataError: An image is broken; raised when its batch is due.
        """
        self._order.check_position(epoch, start_batch)
        indices = self._order.permutation(epoch)
        shares = self._order.shares(start_batch)
        keys = ([(index, epoch) for index in indices[share].tolist()] for share in shares)
        return self._delivery.deliver(self._samples, keys)


class FolderEval:
    """Evaluation batches from image files: shorter side resized, one centre crop."""

    def __init__(self, samples: _FolderSamples, part: range, batch_size: int, delivery: _Delivery) -> None:
        self._samples, self._part, self._batch_size, self._delivery = samples, part, batch_size, delivery

    @property
    def num_samples(self) -> int:
        """Images in the whole set, over all processes."""
        return len(self._samples.files.paths)

    def __len__(self) -> int:
        return len(range(0, len(self._part), self._batch_size))

    def batches(self) -> Iterator[Batch]:
        """Yield this process's part of the set, in order, without augmentation.

        Raises:
            DataError: An image is broken; raised when its batch is due.
        """
        starts = range(0, len(self._part), self._batch_size)
        keys = ([(index, 0) for index in self._part[start : start + self._batch_size]] for start in starts)
        return self._delivery.deliver(self._samples, keys)
