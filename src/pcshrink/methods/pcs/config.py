"""The settings of Progressive Channel-Shrinking."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeVar

from pcshrink.config import BY_RUN, MethodConfig, Optimizer, RunFacts, is_number

PRESETS: dict[str, float] = {"A": 2 / 3, "B": 1.0, "C": 4 / 3}
Pushed = TypeVar("Pushed", bound="ShrinkConfig")


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig(MethodConfig):
    """What every method with salience generators shares.

    Attributes:
        alpha: Weight of the newest batch in the running salience.
        reduction: The generator's hidden width is the layer's output width divided by this, but at least 8.
        generator_norm: BatchNorm1d between the generator's two layers.
        init_salience: Where every salience starts; below 1, since the hard sigmoid has no gradient there.
        threshold: A channel whose running salience is at most this is dead.
    """

    alpha: float = 0.1
    reduction: int = 4
    generator_norm: bool = True
    init_salience: float = 0.9
    threshold: float = 1e-3

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check_counts("reduction")
        self.check_shares("alpha", "init_salience", "threshold")


@dataclass(frozen=True, kw_only=True)
class ShrinkConfig(GeneratorConfig):
    """How a network is to be shrunk by the paper's method.

    Attributes:
        strength: How hard the channels are pushed; "A", "B", "C" are 2/3, 1 and 4/3. 1 is the paper's rate, raised in
            schedules that are shorter than the paper's. With a budget the rate is steered, and this is hardly more than
            where it starts from.
        lr: The learning rate (the peak of your schedule while shrinking); how much faster gates must move in a short
            schedule depends on it.
        momentum: The momentum, for the same; 0 for none.
        optimizer: For the same; AdamW's steps do not grow with the gradient.
        lam: The raw penalty weight at the end of the schedule (on the batch mean); overrides ``strength``, and is not
            steered by a budget.
        power: The exponent of the growing rate, lambda(t) = lambda_base (t / T) ** power. Without effect where a budget
            steers the rate.
        scope: Rank the channels within each "group", or over all groups together ("global").
        allocation: With a budget: every group finds its own width ("learned"), or all give the same share ("uniform").
        price: Weigh the push on a group by what one of its channels costs: its multiply-adds, its parameters, its
            measured time, or nothing.
    """

    method: ClassVar[str] = "pcs"

    strength: float | Literal["A", "B", "C"] = "B"
    lr: float = field(default=0.1, metadata=BY_RUN)
    momentum: float = field(default=0.9, metadata=BY_RUN)
    optimizer: Optimizer = field(default="sgd", metadata=BY_RUN)
    lam: float | None = None
    power: float = 2.0
    scope: Literal["group", "global"] = "group"
    allocation: Literal["learned", "uniform"] = "learned"
    price: Literal["none", "madds", "params", "latency"] = "none"

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        named = isinstance(self.strength, str)
        fine = self.strength in PRESETS if named else is_number(self.strength) and self.multiple > 0
        self.check(fine, "strength", self.strength, 'a number above 0, or a preset "A", "B" or "C"')
        fine = self.lam is None or (is_number(self.lam) and self.lam > 0)
        self.check(fine, "lam", self.lam, "a number above 0, or None")
        self.check_positive("lr", "power")
        fine = is_number(self.momentum) and 0 <= self.momentum < 1
        self.check(fine, "momentum", self.momentum, "a number from 0 to below 1")

    @classmethod
    def paper(cls, preset: Literal["A", "B", "C"] = "B", **changes: object) -> ShrinkConfig:
        """The paper's settings: half of the channels, ranked by the running salience, no extras."""
        return cls.from_dict({"strength": preset} | changes)

    def for_run(self: Pushed, run: RunFacts) -> Pushed:
        """Also with how the run's optimizer moves the gates."""
        return replace(super().for_run(run), optimizer=run.optimizer, lr=run.lr, momentum=run.momentum)

    @property
    def multiple(self) -> float:
        """The strength as a number."""
        return PRESETS[self.strength] if isinstance(self.strength, str) else float(self.strength)
