"""From a budget to what a method is given to meet; the same in the trainer and in loops of a user's own."""

from __future__ import annotations

from typing import Literal, Protocol

from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel, LayerTimes
from pcshrink.budget.latency import Family
from pcshrink.budget.latency_target import LatencyTarget
from pcshrink.shrinker import Shrinker


class Watch(Protocol):
    """Measures the time of one shrinker's network, when it is first asked."""

    def times(self) -> LayerTimes:
        """What the layers take."""
        ...

    def widths(self, family: Family | None) -> dict[str, int]:
        """Widths with which the whole network takes the time asked for; without a family all give the same share."""
        ...


def target_of(
    budget: BudgetConfig,
    shrinker: Shrinker,
    example_input: object,
    costs: CostModel,
    watch: Watch,
    *,
    gates: Literal["keep", "fold"],
    limit: Limit | None = None,
) -> CostTarget:
    """A budget together with the network it is for.

    Args:
        budget: What the user said.
        shrinker: What ``attach_`` gave.
        example_input: As for ``attach_``.
        costs: What the network costs by its widths; for a latency budget it is told what the layers take.
        watch: Asked only for a latency budget.
        gates: Whether the gates stay in the compact network.
        limit: A budget of costs as numbers, where the network was cut since they were worked out.

    Raises:
        ConfigError: It allows the whole network.
        OutOfReachError: No widths can meet it.
    """
    if budget.latency is None:
        limit = limit or Limit.of(budget, shrinker, example_input)
        target = CostTarget(limit, costs, shrinker.config, shrinker.align, gates)
    else:
        times = watch.times()
        costs.set_times(times)
        target = LatencyTarget(
            Limit(budget, budget.latency * times.dense, times.dense), costs, shrinker.config, shrinker.align, gates,
            choose=watch.widths,
        )  # fmt: skip
    target.check()
    return target


def tell_prices(shrinker: Shrinker, costs: CostModel, watch: Watch) -> None:
    """Tell the method what its channels cost now, if it wants to know."""
    wanted = shrinker.method.priced_by
    if wanted is None:
        return
    if wanted == "latency":
        costs.set_times(watch.times())
    shrinker.method.set_prices(costs.prices(wanted))
