"""How batches are made: one frozen set of options for every data set."""

import dataclasses
from collections.abc import Collection
from typing import Literal

from pcshrink.config import BY_RUN
from pcshrink.errors import ConfigError

# What only some data sets can act on; each says which of these have an effect on it.
SPECIAL_OPTIONS = ("padding", "cutout", "image_size", "resize_size", "rand_augment", "interpolation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Options of `load_dataset`; `None` means what is usual for the data set.

    Attributes:
        batch_size: Training images in a *global* batch, over all processes.
        eval_batch_size: Images in one evaluation batch of one process.
        seed: Together with the epoch it decides the order and every augmentation.
        padding: Random crops are taken from the image with this many zero pixels around it; 0 turns cropping
            off (in-memory sets only; CIFAR-10: 4, digits: 1).
        flip: Mirror half of the training images (CIFAR-10 and folders: on, digits: off).
        cutout: Side of the square wiped out of every training image; 0 turns it off (in-memory sets only).
        image_size: Side of what the network sees (folders only).
        resize_size: Length of the shorter side before the centre crop of the evaluation (folders only).
        rand_augment: Add RandAugment to the training transforms (folders only).
        interpolation: How images are resized (folders only).
        mean: Per-channel mean to subtract, on the scale 0 to 1.
        std: Per-channel deviation to divide by, on the scale 0 to 1.
        workers: Decoding processes of a folder, `None` for one per core, at most 8; in-memory sets need none.
        channels_last: Deliver images in `torch.channels_last` layout.

    Raises:
        ConfigError: A value is out of range.

    Example:
        >>> DataConfig(batch_size=64).cutout
        0
    """

    batch_size: int = 128
    eval_batch_size: int = 500
    seed: int = dataclasses.field(default=0, metadata=BY_RUN)
    padding: int | None = None
    flip: bool | None = None
    cutout: int = 0
    image_size: int = 224
    resize_size: int = 256
    rand_augment: bool = False
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    workers: int | None = None
    channels_last: bool = dataclasses.field(default=False, metadata=BY_RUN)

    def __post_init__(self) -> None:
        self._check_range("batch_size", self.batch_size, 1)
        self._check_range("eval_batch_size", self.eval_batch_size, 1)
        self._check_range("padding", self.padding, 0)
        self._check_range("cutout", self.cutout, 0)
        self._check_range("image_size", self.image_size, 1)
        self._check_range("resize_size", self.resize_size, self.image_size)
        self._check_range("workers", self.workers, 0)
        if self.interpolation not in ("bilinear", "bicubic"):
            msg = f"interpolation must be 'bilinear' or 'bicubic', got {self.interpolation!r}"
            raise ConfigError(msg)
        if self.std is not None and min(self.std, default=0.0) <= 0:
            msg = f"std must hold positive numbers, one per channel, got {self.std}"
            raise ConfigError(msg)

    @staticmethod
    def _check_range(name: str, value: int | None, least: int) -> None:
        if value is not None and value < least:
            msg = f"{name} must be at least {least}, got {value}"
            raise ConfigError(msg)

    def refuse_options_without_effect(self, dataset: str, effective: Collection[str]) -> None:
        """Complain about special options that were set although `dataset` has no use for them.

        Args:
            dataset: Its name.
            effective: The special options it acts on.

        Raises:
            ConfigError: Such an option is not at its default.
        """
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in SPECIAL_OPTIONS:
            value = getattr(self, name)
            if name not in effective and value != defaults[name]:
                msg = f"{name} has no effect on the data set {dataset!r}; remove it (got {value!r})"
                raise ConfigError(msg)

    def channel_statistics(
        self, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and deviation to normalise with: the user's, or else the ones given.

        Raises:
            ConfigError: The user's do not have one number per channel.
        """
        for name, own, usual in (("mean", self.mean, mean), ("std", self.std, std)):
            if own is not None and len(own) != len(usual):
                msg = f"{name} needs {len(usual)} numbers, one per channel, got {own}"
                raise ConfigError(msg)
        return self.mean or mean, self.std or std
