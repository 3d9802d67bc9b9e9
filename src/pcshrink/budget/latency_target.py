"""A latency budget as a method sees it: predicted while it pushes, measured where widths are fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from pcshrink.budget.allocate import CostTarget
from pcshrink.budget.latency import Family
from pcshrink.errors import OutOfReachError

OUT_OF_REACH = 1.25  # the sum of the layers' times predicts the network's well enough to refuse beyond this


@dataclass
class LatencyTarget(CostTarget):
    """A limit on the time of the layers, in seconds; the whole network decides which widths meet it.

    Attributes:
        choose: Measures which widths of a family take the asked share of the dense network's time; without a family
            all groups give the same share.
    """

    choose: Callable[[Family | None], dict[str, int]] = field(kw_only=True)

    def check(self) -> None:
        """Refuse a share that is clearly too small; what is missed by less is told by the measurement.

        Raises:
            OutOfReachError: With what the layers take at the narrowest widths.
        """
        share = self.budget.config.latency or 1.0  # what was asked for: the limit follows what is aimed at
        least = self.cost_of(self.least) / self.dense
        if least > OUT_OF_REACH * share:
            message = (
                f"shrink.budget.latency: {share:g} is out of reach: with the narrowest widths the layers still take "
                f"about {least:.2f} of the dense network's time; ask for more"
            )
            raise OutOfReachError(message)

    def widths(
        self, scores: Mapping[str, Tensor] | None = None, least: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Widths with which the whole network was measured to meet the limit."""
        if scores is None:
            return self.choose(None)
        worth = scores
        return self.choose(lambda share: CostTarget.widths(self._at(share), worth, least))

    def widest(self, family: Callable[[float], Mapping[str, float]]) -> dict[str, int]:
        """The widest of a family that was measured to meet the limit."""
        return self.choose(lambda share: CostTarget.widest(self._at(share), family))

    def _at(self, share: float) -> LatencyTarget:
        return replace(self, budget=replace(self.budget, limit=share * self.dense))
