"""All settings of the method in one frozen object, checked once."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pcshrink.errors import ConfigError

PRESETS: dict[str, float] = {"A": 2 / 3, "B": 1.0, "C": 4 / 3}
CHOICES: dict[str, tuple[str, ...]] = {
    "scope": ("group", "global"),
    "policy": ("running", "input"),
    "method": ("shrink", "truncate", "lasso"),
}


@dataclass(frozen=True, kw_only=True)
class ShrinkConfig:
    """How a network is to be shrunk.

    Attributes:
        ratio: Share of the channels of each group that is pushed to zero; a number in (0, 1), or a mapping from a
            pattern (glob over the names of a group's writers) to a number, groups that match nothing staying whole.
        total_steps: Length of the shrinking phase in optimizer steps; the rate grows until then.
        strength: How far the penalty alone would carry an entry over the whole schedule; 1 is preset B, and "A", "B",
            "C" are 2/3, 1 and 4/3. It means the same for short and long schedules.
        lr: The learning rate the strength is computed for (the peak of your schedule while shrinking).
        momentum: The momentum the strength is computed for; 0 for none.
        lam: The raw penalty weight at the end of the schedule (on the batch mean); overrides ``strength``.
        power: The exponent of the growing rate, lambda(t) = lambda_base (t / T) ** power.
        alpha: Weight of the newest batch in the running salience.
        scope: Rank the channels within each "group", or over all groups together ("global").
        policy: Rank by the "running" salience, the same for all inputs, or by each "input"'s own salience.
        method: "shrink" (the method), or an ablation: "truncate" sets the lowest entries to zero in the forward pass,
            "lasso" pushes all entries alike.
        reduction: The generator's hidden width is the layer's output width divided by this, but at least 8.
        generator_norm: BatchNorm1d between the generator's two layers.
        init_salience: Where every salience starts; below 1, since the hard sigmoid has no gradient there.
        threshold: A channel whose running salience is at most this is dead.
        min_channels: Every group keeps at least this many channels.
        align: Kept widths are multiples of this where the group is large enough; "auto" measures what this machine
            likes when attaching (some seconds).
        include: Only groups with a writer that matches one of these patterns shrink (all when empty).
        exclude: Layers that match one of these patterns keep their output channels.
        prove: Prove every group on the model when attaching.
    """

    ratio: float | Mapping[str, float] = 0.5
    total_steps: int = 1000
    strength: float | Literal["A", "B", "C"] = "B"
    lr: float = 0.1
    momentum: float = 0.9
    lam: float | None = None
    power: float = 2.0
    alpha: float = 0.1
    scope: Literal["group", "global"] = "group"
    policy: Literal["running", "input"] = "running"
    method: Literal["shrink", "truncate", "lasso"] = "shrink"
    reduction: int = 4
    generator_norm: bool = True
    init_salience: float = 0.9
    threshold: float = 1e-3
    min_channels: int = 1
    align: int | Literal["auto"] = 1
    include: tuple[str, ...] = field(default=())
    exclude: tuple[str, ...] = field(default=())
    prove: bool = True

    def __post_init__(self) -> None:
        """Check every field once; inner code trusts it."""
        ratios = dict(self.ratio) if isinstance(self.ratio, Mapping) else {"": self.ratio}
        for pattern, ratio in ratios.items():
            where = f"ratio[{pattern!r}]" if pattern else "ratio"
            _check(_is_number(ratio) and 0 < ratio < 1, where, ratio, "a number above 0 and below 1, for example 0.5")
        _check(bool(ratios), "ratio", self.ratio, "a number, or at least one pattern with a number")
        for name in ("include", "exclude"):
            value = getattr(self, name)
            if isinstance(value, str):
                _check(False, name, value, f"a list of patterns, for example {name}=[{value!r}]")
            object.__setattr__(self, name, tuple(value))
        for name, allowed in CHOICES.items():
            _check(getattr(self, name) in allowed, name, getattr(self, name), f"one of {', '.join(allowed)}")
        named = isinstance(self.strength, str)
        fine = self.strength in PRESETS if named else _is_number(self.strength) and self.multiple > 0
        _check(fine, "strength", self.strength, 'a number above 0, or a preset "A", "B" or "C"')
        for name in ("total_steps", "reduction", "min_channels", "align"):
            value = getattr(self, name)
            if name == "align" and value == "auto":
                continue
            _check(type(value) is int and value >= 1, name, value, "a whole number of at least 1")
        fine = self.lam is None or (_is_number(self.lam) and self.lam > 0)
        _check(fine, "lam", self.lam, "a number above 0, or None")
        for name in ("lr", "power"):
            value = getattr(self, name)
            _check(_is_number(value) and value > 0, name, value, "a number above 0")
        fine = _is_number(self.momentum) and 0 <= self.momentum < 1
        _check(fine, "momentum", self.momentum, "a number from 0 to below 1")
        for name in ("alpha", "init_salience", "threshold"):
            value = getattr(self, name)
            _check(_is_number(value) and 0 < value < 1, name, value, "a number above 0 and below 1")

    @classmethod
    def paper(cls, preset: Literal["A", "B", "C"] = "B", **changes: Any) -> ShrinkConfig:
        """The paper's settings: half of the channels, ranked by the running salience, no extras."""
        return cls.from_dict({"strength": preset} | changes)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> ShrinkConfig:
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
        settings["ratio"] = dict(self.ratio) if isinstance(self.ratio, Mapping) else self.ratio
        return settings | {"include": list(self.include), "exclude": list(self.exclude)}

    @property
    def multiple(self) -> float:
        """The strength as a number."""
        return PRESETS[self.strength] if isinstance(self.strength, str) else float(self.strength)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check(fine: bool, name: str, value: object, wanted: str) -> None:
    if not fine:
        message = f"ShrinkConfig.{name} must be {wanted}; got {value!r}"
        raise ConfigError(message)
