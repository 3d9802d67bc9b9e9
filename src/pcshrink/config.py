"""Settings that every method has, checked once; a method adds its own by inheriting from them."""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from pcshrink.errors import ConfigError

# A recipe gives these by other means: the length of a phase, the optimizer section, whether it is the first attachment.
BY_RUN = {"recipe": False}
Metric = Literal["madds", "params", "mem_access"]
Convention = Literal["layers", "paper"]  # how madds and mem_access are counted, see docs/metrics.md
Quantity = Literal["madds", "params", "mem_access", "latency"]  # what a channel can be priced by
Optimizer = Literal["sgd", "adamw"]
Config = TypeVar("Config", bound="MethodConfig")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the rest of a run says that settings of a method may depend on.

    Attributes:
        total_steps: Length of the shrinking phase in optimizer steps.
        prove: Whether groups are to be proven when attaching.
        optimizer: What moves the gates.
        lr: Its learning rate while shrinking.
        momentum: Its momentum.
    """

    total_steps: int
    prove: bool
    optimizer: Optimizer
    lr: float
    momentum: float


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """What all methods share.

    Attributes:
        ratio: Share of the channels of each group that may leave; a number in (0, 1), or a mapping from a
            pattern (glob over the names of a group's writers) to a number, groups that match nothing staying whole.
        total_steps: Length of the shrinking phase in optimizer steps.
        min_channels: Every group keeps at least this many channels.
        align: Kept widths are multiples of this where the group is large enough; a whole number, a mapping from a
            pattern to a number as for ``ratio`` (the first that matches holds, and groups that match nothing have any
            width), or "auto", which measures what this machine likes when attaching (some seconds).
        include: Only groups with a writer that matches one of these patterns shrink (all when empty).
        exclude: Layers that match one of these patterns keep their output channels.
        prove: Prove every group on the model when attaching.
    """

    method: ClassVar[str] = ""

    ratio: float | Mapping[str, float] = 0.5
    total_steps: int = field(default=1000, metadata=BY_RUN)
    min_channels: int = 2
    align: int | Literal["auto"] | Mapping[str, int] = 1
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    prove: bool = field(default=True, metadata=BY_RUN)

    def __post_init__(self) -> None:
        """Check every field once; inner code trusts it."""
        ratios = dict(self.ratio) if isinstance(self.ratio, Mapping) else {"": self.ratio}
        for pattern, ratio in ratios.items():
            where = f"ratio[{pattern!r}]" if pattern else "ratio"
            self.check(isinstance(pattern, str), "ratio", self.ratio, "a number, or a number for each pattern of names")
            self.check(is_number(ratio) and 0 < ratio < 1, where, ratio, "a number above 0 and below 1, such as 0.5")
        self.check(bool(ratios), "ratio", self.ratio, "a number, or at least one pattern with a number")
        for name in ("include", "exclude"):
            value = getattr(self, name)
            fine = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
            example = value if isinstance(value, str) else "layer1.*"
            self.check(fine, name, value, f"a list of patterns, for example {name}=[{example!r}]")
            object.__setattr__(self, name, tuple(value))
        self.check_counts("total_steps", "min_channels")
        if self.align != "auto":
            self._check_align()
        self.check_choices()

    @classmethod
    def from_dict(cls: type[Config], settings: Mapping[str, Any]) -> Config:
        """Build from plain data; unknown keys are an error with the nearest known name."""
        known = [f.name for f in dataclasses.fields(cls)]
        for key in settings:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(known)}"
                message = f"unknown setting {key!r}; {hint}"
                raise ConfigError(message)
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that ``from_dict`` and JSON understand."""
        settings = dataclasses.asdict(self)
        for name in ("ratio", "align"):
            value = getattr(self, name)
            settings[name] = dict(value) if isinstance(value, Mapping) else value
        return settings | {"include": list(self.include), "exclude": list(self.exclude)}

    def for_run(self: Config, run: RunFacts) -> Config:
        """The same settings with those that follow from a run."""
        return dataclasses.replace(self, total_steps=run.total_steps, prove=run.prove)

    def _check_align(self) -> None:
        if not isinstance(self.align, Mapping):
            self.check_counts("align")
            return
        self.check(bool(self.align), "align", self.align, "a whole number, or at least one pattern with a number")
        for pattern, step in self.align.items():
            self.check(isinstance(pattern, str), "align", self.align, "a number, or a number for each pattern of names")
            fine = type(step) is int and step >= 1
            self.check(fine, f"align[{pattern!r}]", step, "a whole number of at least 1")

    def check(self, fine: bool, name: str, value: object, wanted: str) -> None:
        """Complain about a field.

        Raises:
            ConfigError: It is not fine.
        """
        if not fine:
            message = f"{type(self).__name__}.{name} must be {wanted}; got {value!r}"
            raise ConfigError(message)

    def check_counts(self, *names: str) -> None:
        """Whole numbers of at least 1."""
        for name in names:
            value = getattr(self, name)
            self.check(type(value) is int and value >= 1, name, value, "a whole number of at least 1")

    def check_shares(self, *names: str) -> None:
        """Numbers above 0 and below 1."""
        for name in names:
            value = getattr(self, name)
            self.check(is_number(value) and 0 < value < 1, name, value, "a number above 0 and below 1")

    def check_positive(self, *names: str) -> None:
        """Numbers above 0."""
        for name in names:
            value = getattr(self, name)
            self.check(is_number(value) and value > 0, name, value, "a number above 0")

    def check_choices(self) -> None:
        """Fields whose type is a plain list of words."""
        for name, hint in typing.get_type_hints(type(self)).items():
            if typing.get_origin(hint) is Literal:
                allowed = typing.get_args(hint)
                value = getattr(self, name)
                self.check(value in allowed, name, value, f"one of {', '.join(map(str, allowed))}")


def is_number(value: object) -> bool:
    """Whether this is a finite number and not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
