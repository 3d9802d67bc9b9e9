"""How batches are made: one frozen set of options for every data set."""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from pcshrink.common.preprocessing import INTERPOLATIONS, Preprocessing
from pcshrink.config import BY_RUN, is_number
from pcshrink.errors import ConfigError

# What only some data sets can act on; each says which of these have an effect on it.
SPECIAL_OPTIONS = (
    "padding",
    "padding_mode",
    "cutout",
    "image_size",
    "resize_size",
    "rand_augment",
    "least_crop",
    "interpolation",
    "classes",
    "holdout",
    "split_seed",
)
# Recipes of earlier runs state these for every data set; where they have no effect, they are no mistake.
_ONCE_DEFAULT = {"image_size": 224, "resize_size": 256, "interpolation": "bilinear"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Options of `load_dataset`; `None` means what is usual for the data set, or for the network.

    Attributes:
        batch_size: Training images in a *global* batch, over all processes.
        eval_batch_size: Images in one evaluation batch of one process.
        seed: Together with the epoch it decides the order and every augmentation.
        padding: Random crops are taken from the image with this many pixels around it; 0 turns cropping off (in-memory
            sets only; CIFAR-10: 4, digits: 1).
        padding_mode: These pixels are "zeros", or the image mirrored at its edge, "reflect" (in-memory sets only).
        flip: Mirror half of the training images (CIFAR-10 and folders: on, digits: off).
        cutout: Side of the square wiped out of every training image; 0 turns it off (in-memory sets only).
        image_size: Side of what the network sees, or its height and width (folders only; the network's own).
        resize_size: Length of the shorter side before the centre crop of the evaluation; 0 stretches the image to
            `image_size` instead (folders only; follows `image_size` in the network's own proportion).
        rand_augment: Add RandAugment to the training transforms (folders only).
        least_crop: Smallest share of an image that a training crop takes; larger crops look more like those of the
            evaluation (folders only).
        interpolation: How images are resized (folders only; the network's own).
        classes: Which class folder belongs to which output: a file (see `ClassOrder`), or the names in the order of the
            outputs; by default the folders in the order of their names (folders only).
        holdout: Share of every class that is held out for evaluation where there is no `val` (folders only).
        split_seed: Which images these are. Not `seed`, or a network would be evaluated on what an earlier run with
            another seed has trained it on (folders only).
        mean: Per-channel mean to subtract, on the scale 0 to 1 (folders: the network's own; one number: grey).
        std: Per-channel deviation to divide by, on the scale 0 to 1 (folders: the network's own).
        workers: Decoding processes of a folder, `None` for one per core, at most 8; in-memory sets need none.
        channels_last: Deliver images in `torch.channels_last` layout.
        views: Show every training image in this many random ways only, in turn by epoch; 0: in a new one every time.

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
    padding_mode: Literal["zeros", "reflect"] = "zeros"
    flip: bool | None = None
    cutout: int = 0
    image_size: int | tuple[int, int] | None = None
    resize_size: int | None = None
    rand_augment: bool = False
    least_crop: float = 0.08
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] | None = None
    classes: Path | tuple[str, ...] | None = None
    holdout: float = 0.2
    split_seed: int = 0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    workers: int | None = None
    channels_last: bool = dataclasses.field(default=False, metadata=BY_RUN)
    views: int = dataclasses.field(default=0, metadata=BY_RUN)

    def __post_init__(self) -> None:
        self._check_range("batch_size", self.batch_size, 1)
        self._check_range("eval_batch_size", self.eval_batch_size, 1)
        self._check_range("padding", self.padding, 0)
        self._check_range("cutout", self.cutout, 0)
        self._check_range("views", self.views, 0)
        if self.padding_mode not in ("zeros", "reflect"):
            msg = f'padding_mode must be "zeros" or "reflect", got {self.padding_mode!r}'
            raise ConfigError(msg)
        sides = self.image_size if isinstance(self.image_size, tuple) else (self.image_size,)
        for side in sides:
            self._check_range("image_size", side, 1)
        if self.resize_size != 0:
            self._check_range("resize_size", self.resize_size, max(side or 1 for side in sides))
        self._check_range("workers", self.workers, 0)
        if self.interpolation not in (None, *INTERPOLATIONS):
            msg = f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {self.interpolation!r}"
            raise ConfigError(msg)
        if len(sides) not in (1, 2) or (isinstance(self.image_size, tuple) and len(sides) != 2):
            msg = f"image_size must be a side, or height and width, got {self.image_size}"
            raise ConfigError(msg)
        if not is_number(self.holdout) or not 0 < self.holdout < 1:
            msg = f"holdout must be a number above 0 and below 1, got {self.holdout}"
            raise ConfigError(msg)
        if not is_number(self.least_crop) or not 0 < self.least_crop <= 1:
            msg = f"least_crop must be a number above 0 and at most 1, got {self.least_crop}"
            raise ConfigError(msg)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and not (isinstance(values, (tuple, list)) and all(map(is_number, values))):
                msg = f"{name} must hold numbers, one per channel, got {values!r}"
                raise ConfigError(msg)
        if self.std is not None and min(self.std, default=0.0) <= 0:
            msg = f"std must hold positive numbers, one per channel, got {self.std}"
            raise ConfigError(msg)

    @staticmethod
    def _check_range(name: str, value: int | None, least: int) -> None:
        if value is not None and (type(value) is not int or value < least):
            msg = f"{name} must be a whole number of at least {least}, got {value!r}"
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
            if name not in effective and value not in (defaults[name], _ONCE_DEFAULT.get(name)):
                msg = f"{name} has no effect on the data set {dataset!r}; remove it (got {value!r})"
                raise ConfigError(msg)

    def completed(self, network: Preprocessing, options: Collection[str], *, statistics: bool) -> "DataConfig":
        """The same options, with those that were left open as the network is used to.

        Args:
            network: What it is used to.
            options: Which special options have an effect; the others stay open.
            statistics: Also fill in mean and std.
        """
        _, height, width = network.input_size
        size = self.image_size or (height if height == width else (height, width))
        usual: dict[str, Any] = {
            "image_size": size,
            "resize_size": network.resize_for(size),
            "interpolation": network.interpolation,
        }
        open_ = {name: value for name, value in usual.items() if name in options and getattr(self, name) is None}
        if statistics:
            open_ |= {"mean": self.mean or network.mean, "std": self.std or network.std}
        return dataclasses.replace(self, **open_)

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
