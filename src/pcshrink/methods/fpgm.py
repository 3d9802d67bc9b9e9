"""Filter pruning via geometric median."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from pcshrink.config import MethodConfig, is_number
from pcshrink.methods.select import lowest
from pcshrink.methods.sfp import SFPConfig, SoftPruning


@dataclass(frozen=True, kw_only=True)
class FPGMConfig(SFPConfig):
    """Settings of pruning by the geometric median; ``ratio`` is the source's pruning rate.

    Attributes:
        shifts: As in soft filter pruning, for ``hold: false``; a choice that holds takes its shifts along at once.
        hold: Choose once, when the phase begins, and train on without the chosen filters, as the source's code does;
            False lets them grow back as in soft filter pruning.
        mix: Share of what goes that is chosen by the smallest norm before distances are taken among the rest. 0 is the
            source's "only" variant, 0.25 its "mix" at a rate of 40 %.
    """

    method: ClassVar[str] = "fpgm"

    shifts: Literal["zero", "keep"] = "zero"
    hold: bool = True
    mix: float = 0.0

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check(type(self.hold) is bool, "hold", self.hold, "true or false")
        fine = self.shifts == "zero" or not self.hold
        self.check(fine, "shifts", self.shifts, '"zero" unless hold is false, since what is held is closed at once')
        fine = is_number(self.mix) and 0 <= self.mix <= 1
        self.check(fine, "mix", self.mix, "a number from 0 to 1")


class GeometricMedian(SoftPruning):
    """FPGM: the filters nearest to all others go, since the others can stand in for them.

    The score of channel i of a group is S_i = sum over j of ||F_i - F_j||_2, where F_i is everything that writes the
    channel: the filters of all writers side by side. The k lowest go: they are nearest to the geometric median, which
    itself is never computed. The source zeroes the gradients of what it has chosen, so its choice never changes after
    the first time; here it is made once, when the shrinking phase begins, and its gates are closed.

    Departs from the source in three things. Channels are chosen for a whole group, so a residual stream shrinks too.
    What a norm emits for a chosen filter goes at once with its channel. The choice is made on the weights that the
    phase starts from: with dense epochs before it, not on random ones.
    """

    Config: ClassVar[type[MethodConfig]] = FPGMConfig
    starts_from: ClassVar[str] = "scratch, or dense weights (the choice means more there)"
    reference: ClassVar[str] = (
        "He et al., Filter Pruning via Geometric Median for Deep Convolutional Neural Networks Acceleration, 2019"
    )
    config: FPGMConfig

    @property
    def holds(self) -> bool:
        """As configured."""
        return self.config.hold

    def scores(self) -> dict[str, Tensor]:
        """The sums of distances to all other filters of the group."""
        return {name: distances(filters.matrix()) for name, filters in self.filters.items()}

    def choose(self) -> dict[str, Tensor]:
        """Some by norm, where variants are mixed, and the rest by distance."""
        return {g.name: self._choose(self.filters[g.name].matrix(), g.k) for g in self.groups}

    def _choose(self, matrix: Tensor, k: int) -> Tensor:
        small = lowest(matrix.norm(dim=1), round(self.config.mix * k))
        scores = matrix.new_full((len(matrix),), float("inf"))
        scores[~small] = distances(matrix[~small])
        return small | lowest(scores, k - int(small.sum()))

    def largest(self, norms: Tensor, chosen: Tensor) -> Tensor:
        """As large as they were: filters are chosen by distance, so that what is kept need not be larger."""
        return norms

    def after_epoch(self, progress: float) -> None:
        """Set what is chosen by now to zero, unless the choice holds."""
        if not self.holds:
            super().after_epoch(progress)


def distances(filters: Tensor) -> Tensor:
    """For every row (C, D) the sum of its Euclidean distances to all rows (C,)."""
    # Without the shortcut by matrix products, which loses half of the digits where filters are close.
    return torch.cdist(filters, filters, compute_mode="donot_use_mm_for_euclid_dist").sum(dim=1)
