"""What a network wants to see: how an image becomes its input, and what its outputs are called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pcshrink.errors import ConfigError

# What the lists in JSON hold.
_READERS: dict[str, Any] = {"input_size": lambda item: item, "mean": float, "std": float, "classes": str}
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How an image becomes the input of a network.

    The shorter side is resized to ``resize``, the centre of ``input_size`` is cropped, bytes become numbers from 0 to
    1, then ``(image - mean) / std``. One channel means grey.

    Attributes:
        input_size: Channels, height and width of the input.
        mean: For each channel, on the scale 0 to 1.
        std: For each channel, on the scale 0 to 1.
        resize: Length of the shorter side before the centre crop; 0 stretches the image to the input's size instead.
        interpolation: How images are resized: "nearest", "bilinear", "bicubic" or "lanczos".
        classes: Names of the outputs in their order; empty where nobody knows.
        input_name: What the input is called in exported files.
        output_name: What the output is called in exported files.

    Raises:
        ConfigError: A value cannot be.

    Example:
        >>> Preprocessing(input_size=(1, 28, 28), mean=(0.13,), std=(0.31,), resize=32).resize_for(56)
        64
    """

    input_size: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: int = 0
    interpolation: str = "bilinear"
    classes: tuple[str, ...] = ()
    input_name: str = "input"
    output_name: str = "output"

    def __post_init__(self) -> None:
        size = self.input_size
        for name in ("input_size", "mean", "std", "classes"):
            if not isinstance(getattr(self, name), tuple | list):
                _refuse(name, "a tuple", getattr(self, name))
        if len(size) != 3 or any(type(n) is not int or n < 1 for n in size):
            _refuse("input_size", "channels, height and width, each at least 1", size)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != size[0] or not all(isinstance(n, int | float) and math.isfinite(n) for n in values):
                _refuse(name, f"{size[0]} numbers, one per channel", values)
        if min(self.std) <= 0:
            _refuse("std", "positive", self.std)
        if self.resize and (type(self.resize) is not int or self.resize < max(size[1:])):
            _refuse("resize", f"0 or at least the input's {max(size[1:])}", self.resize)
        if not all(isinstance(name, str) for name in self.classes):
            _refuse("classes", "names", self.classes)
        if self.interpolation not in INTERPOLATIONS:
            _refuse("interpolation", f"one of {', '.join(INTERPOLATIONS)}", self.interpolation)

    def resize_for(self, size: int | tuple[int, int]) -> int:
        """The ``resize`` that fits another size of input, in proportion."""
        if not self.resize or not isinstance(size, int):
            return 0
        return round(size * self.resize / max(self.input_size[1:]))

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Preprocessing:
        """What ``to_dict`` gave; keys that a later version added are left out.

        Raises:
            ConfigError: A value is missing or cannot be.
        """
        try:
            known: dict[str, Any] = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            for name, read in _READERS.items():
                if name in known:
                    known[name] = tuple(read(item) for item in known[name])
            return cls(**known)
        except ConfigError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            message = f"this describes no preprocessing: {type(error).__name__}: {error}"
            raise ConfigError(message) from error


IMAGENET = Preprocessing(
    input_size=(3, 224, 224), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize=256
)  # fmt: skip


def _refuse(name: str, wanted: str, got: object) -> None:
    message = f"Preprocessing.{name} must be {wanted}; got {got!r}"
    raise ConfigError(message)
