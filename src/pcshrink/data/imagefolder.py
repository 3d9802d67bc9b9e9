"""ImageNet-style folders: decoded by worker processes, the same batches whatever their number."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pcshrink.common.preprocessing import IMAGENET, Preprocessing
from pcshrink.common.stop import unheard_by_children
from pcshrink.data.augment import Normalizer
from pcshrink.data.check import count_notes
from pcshrink.data.class_order import ClassOrder
from pcshrink.data.config import DataConfig
from pcshrink.data.decode import BrokenImage, open_image, usable_cores
from pcshrink.data.folder_scan import FolderFiles, ImageFiles, scan_evaluation, scan_folder
from pcshrink.data.images import Transform, evaluation_transform, torchvision_transforms
from pcshrink.data.registry import DataSet
from pcshrink.data.source import Batch, BatchOrder, ImageData, NoTraining, derive_seed, split_evenly
from pcshrink.errors import ConfigError, DataError

_MOST_WORKERS = 8
_FEW_STEPS = 10  # of an epoch; a schedule of the usual number of epochs is too short then

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
    """Open a folder of images as `scan_folder` finds them; the arguments are those of `load_dataset`.

    Raises:
        DataError: The folder is not laid out as expected, or torchvision is missing.
    """
    files = scan_folder(root, asked_order(config), holdout=config.holdout, seed=config.split_seed)
    return open_files(files, config, rank=rank, world_size=world_size, device=device)


def open_files(
    files: FolderFiles,
    config: DataConfig,
    *,
    name: str = "folder",
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """Make sources of batches from lists of files; the other arguments are those of `load_dataset`."""
    order = BatchOrder(
        num_samples=len(files.train.paths),
        batch_size=config.batch_size,
        seed=config.seed,
        rank=rank,
        world_size=world_size,
    )
    data = for_evaluation(files.val, config, name=name, rank=rank, world_size=world_size, device=device)
    seen = data.preprocessing
    samples = _FolderSamples(files.train, _train_transform(config, seen), config.seed, seen.input_size[0] == 1)
    counts = Counter(files.train.labels)
    notes = count_notes(seen.classes, tuple(counts[label] for label in range(len(seen.classes))))
    if len(order) < _FEW_STEPS:
        notes.append(f"an epoch has {len(order)} steps only; a smaller batch_size than {config.batch_size} gives more")
    train = FolderTrain(samples, order, _delivery(config, seen, device))
    return dataclasses.replace(data, train=train, notes=(*((files.note,) if files.note else ()), *notes))


def load_folder_val(
    root: str | Path,
    config: DataConfig,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """Open `root/val/CLASS/*` or `root/CLASS/*` for evaluation; the arguments are those of `load_dataset`.

    Raises:
        DataError: The folder is not laid out as expected, or torchvision is missing.
    """
    files = scan_evaluation(root, asked_order(config))
    return for_evaluation(files, config, rank=rank, world_size=world_size, device=device)


def asked_order(config: DataConfig) -> ClassOrder | None:
    """Which class belongs to which output, where that was said."""
    return None if config.classes is None else ClassOrder.of(config.classes)


def for_evaluation(
    files: ImageFiles,
    config: DataConfig,
    *,
    name: str = "folder",
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """The same for evaluation alone."""
    seen = _preprocessing(config, files.classes)
    samples = _FolderSamples(files, evaluation_transform(seen), config.seed, seen.input_size[0] == 1)
    part = split_evenly(len(files.paths), rank, world_size)
    return ImageData(
        name=name,
        classes=seen.classes,
        input_shape=seen.input_size,
        mean=seen.mean,
        std=seen.std,
        train=NoTraining(),
        val=FolderEval(samples, part, config.eval_batch_size, _delivery(config, seen, device)),
        resize=seen.resize,
        interpolation=seen.interpolation,
    )


def _delivery(config: DataConfig, seen: Preprocessing, device: torch.device | str) -> "_Delivery":
    return _Delivery(
        normalize=Normalizer(seen.mean, seen.std, device),
        workers=min(usable_cores(), _MOST_WORKERS) if config.workers is None else config.workers,
        device=torch.device(device),
        channels_last=config.channels_last,
    )


FOLDER = DataSet(
    name="folder",
    load=load_folder,
    load_val=load_folder_val,
    needs_root=True,
    options=(
        "image_size",
        "resize_size",
        "rand_augment",
        "least_crop",
        "interpolation",
        "classes",
        "holdout",
        "split_seed",
    ),
    own_statistics=False,
    description="images of your own: root/train/CLASS/* and root/val/CLASS/*, or root/CLASS/*",
)


def _preprocessing(config: DataConfig, classes: tuple[str, ...]) -> Preprocessing:
    """What the options come to, the usual of ImageNet for those that nobody filled in."""
    config = config.completed(IMAGENET, FOLDER.options, statistics=True)
    mean, std, size = config.mean or (), config.std or (), config.image_size or 0
    if len(mean) not in (1, 3) or len(std) != len(mean):
        msg = f"mean and std need 3 numbers each, or 1 for grey images; got {config.mean} and {config.std}"
        raise ConfigError(msg)
    height, width = (size, size) if isinstance(size, int) else size
    return Preprocessing(
        input_size=(len(mean), height, width), mean=mean, std=std, resize=config.resize_size or 0,
        interpolation=config.interpolation or "bilinear", classes=classes,
    )  # fmt: skip


def _train_transform(config: DataConfig, seen: Preprocessing) -> Transform:
    v2 = torchvision_transforms()
    mode = v2.InterpolationMode(seen.interpolation)
    size, scale = list(seen.input_size[1:]), (config.least_crop, 1.0)
    steps = [v2.RandomResizedCrop(size, scale=scale, interpolation=mode, antialias=True)]
    if config.flip is not False:
        steps.append(v2.RandomHorizontalFlip())
    if config.rand_augment:
        steps.append(v2.RandAugment(interpolation=mode))
    return cast(Transform, v2.Compose([*steps, v2.PILToTensor()]))


class _FolderSamples(Dataset[Sample]):
    """Decoded and transformed images; a key is (image index, epoch), so a worker needs no other state."""

    def __init__(self, files: ImageFiles, transform: Transform, seed: int, grey: bool) -> None:
        self.files, self._transform, self._seed, self._grey = files, transform, seed, grey

    def __getitem__(self, key: Key) -> Sample:
        index, epoch = key
        image = open_image(self.files.paths[index], self.files.span(index), grey=self._grey)
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
        with unheard_by_children(), warnings.catch_warnings():
            # The number of workers was asked for, or is one for each core of the machine; where a process may use
            # fewer cores, torch has four lines to say about it.
            warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
            loader: DataLoader[Any] = DataLoader(
                samples,
                batch_sampler=cast(Any, keys),  # anything that yields lists of keys, says torch's documentation
                collate_fn=_collate,
                num_workers=self.workers,
                pin_memory=self.device.type == "cuda",
                # Without its own generator a loader draws from the global one, and a resumed run would differ.
                generator=torch.Generator().manual_seed(0),
            )
            batches = iter(loader)
        for batch in batches:
            if isinstance(batch, BrokenImage):
                msg = (
                    f"cannot decode the image {batch}; replace or remove it "
                    "(pcshrink data check DIR lists all broken ones)"
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
