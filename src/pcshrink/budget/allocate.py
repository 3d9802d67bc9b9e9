"""From what the compact network may cost to how many channels each group keeps."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from pcshrink.budget.cost_model import CostModel, Floats, Metric, cost_of
from pcshrink.errors import ConfigError
from pcshrink.methods.select import count
from pcshrink.shrinker import Shrinker
from pcshrink.train.recipe.schema import BudgetSection, ShrinkSection

TOLERANCE = 0.01  # a budget counts as met up to this share above it


@dataclass
class Budget:
    """A limit on the compact network, and the model of its cost.

    Attributes:
        section: What the recipe says.
        limit: The largest cost allowed, as a number.
        dense: What the uncompressed network costs.
    """

    section: BudgetSection
    limit: float
    dense: float

    @classmethod
    def of(cls, section: BudgetSection, shrinker: Shrinker, example_input: Any) -> Budget:
        """Turn a share into a number; the model must still have its original widths.

        Raises:
            ConfigError: The limit allows the whole network.
        """
        dense = cost_of(shrinker.model, example_input, section.metric, section.convention)
        limit = section.amount * dense if section.amount <= 1 else section.amount
        if limit >= dense:
            message = (
                f"shrink.budget.{section.metric}: {limit:,.0f} is no less than what the dense network costs, "
                f"{dense:,.0f} ({section.convention} convention), so nothing would shrink"
            )
            raise ConfigError(message)
        return cls(section, limit, float(dense))

    @property
    def metric(self) -> Metric:
        """What is limited."""
        return self.section.metric


def cost_model(shrinker: Shrinker, example_input: Any, settings: ShrinkSection) -> CostModel:
    """The cost model that fits a recipe's settings."""
    convention = settings.budget.convention if settings.budget else "layers"
    return CostModel.of(shrinker, example_input, gates=settings.gates, convention=convention)


def least_widths(model: CostModel, settings: ShrinkSection) -> Floats:
    """The fewest channels each group may keep."""
    return np.array([_allowed(int(w), 0.0, settings) for w in model.full], dtype=np.float64)


def check(budget: Budget, model: CostModel, settings: ShrinkSection) -> None:
    """Refuse a budget no choice of widths can meet.

    Raises:
        ConfigError: With the smallest value that can be reached.
    """
    least = model.cost(least_widths(model, settings), budget.metric)
    if least > budget.limit * (1 + TOLERANCE):
        why = f"min_channels {settings.min_channels}" + (f", align {settings.align}" if settings.align != 1 else "")
        message = (
            f"shrink.budget.{budget.metric}: {budget.limit:,.0f} cannot be reached; the smallest possible here is "
            f"{least:,.0f}, a share of {least / budget.dense:.3f} of the dense {budget.dense:,.0f} "
            f"({budget.section.convention} convention, {why}, gates: {settings.gates})"
        )
        raise ConfigError(message)


def allocate(
    budget: Budget, model: CostModel, settings: ShrinkSection, running: Mapping[str, Tensor] | None = None
) -> dict[str, int]:
    """How many channels each group keeps so that the budget is met as closely as the widths allow.

    Args:
        budget: The limit.
        model: The cost as a function of the widths.
        settings: Alignment, least widths and the kind of allocation.
        running: Running salience by group; needed for ``allocation: global``, else all groups shrink alike.
    """
    check(budget, model, settings)
    if settings.allocation == "global" and running is not None:
        widths = _by_salience(budget, model, settings, running)
    else:
        widths = _uniform(budget, model, settings)
    widths = _fill(budget, model, settings, widths)
    if model.cost(widths, budget.metric) < (1 - TOLERANCE) * min(budget.limit, model.cost(model.full, budget.metric)):
        widths = _exchange(budget, model, settings, widths)
    return {name: int(width) for name, width in zip(model.names, widths, strict=True)}


def _allowed(full: int, wanted: float, settings: ShrinkSection) -> int:
    """The allowed width nearest to the wanted one: aligned where the group is large enough, never too small."""
    ratio = min(max(1 - wanted / full, 0.0), 1.0)
    assert isinstance(settings.align, int), "a run settles align: auto before anything is counted"
    kept = full - count(ratio, full, settings.min_channels, settings.align)
    return max(kept, 1)


def _uniform(budget: Budget, model: CostModel, settings: ShrinkSection) -> Floats:
    """Bisect on one keep ratio for all groups; the widest choice within the limit."""

    def at(ratio: float) -> Floats:
        return np.array([_allowed(int(w), ratio * w, settings) for w in model.full], dtype=np.float64)

    low, high = 0.0, 1.0
    if model.cost(at(high), budget.metric) <= budget.limit:
        return at(high)
    for _ in range(30):
        middle = (low + high) / 2
        if model.cost(at(middle), budget.metric) <= budget.limit:
            low = middle
        else:
            high = middle
    return at(low)


def _by_salience(budget: Budget, model: CostModel, settings: ShrinkSection, running: Mapping[str, Tensor]) -> Floats:
    """Take away what has the least salience for its cost, step by step, until the limit is met."""
    least, widths = least_widths(model, settings), model.full.copy()
    orders = [np.sort(running[name].double().cpu().numpy()) for name in model.names]
    cost = model.cost(widths, budget.metric)

    def price(index: int) -> float:
        """Salience lost for each unit of cost saved by the group's next step down."""
        narrower = _next_down(model, settings, widths, index)
        saved = cost - model.cost(narrower, budget.metric)
        gone = int(model.full[index] - widths[index])
        step = int(widths[index] - narrower[index])
        lost = float(orders[index][gone : gone + step].sum()) + 1e-9 * step
        return lost / max(saved, 1e-9)

    heap = [(price(i), i) for i in range(len(widths)) if widths[i] > least[i]]
    heapq.heapify(heap)
    while heap and cost > budget.limit:
        _, index = heapq.heappop(heap)
        now = price(index)
        if heap and now > heap[0][0]:
            heapq.heappush(heap, (now, index))
            continue
        widths = _next_down(model, settings, widths, index)
        cost = model.cost(widths, budget.metric)
        if widths[index] > least[index]:
            heapq.heappush(heap, (price(index), index))
    return widths


def _next_down(model: CostModel, settings: ShrinkSection, widths: Floats, index: int) -> Floats:
    """The group narrower by one step, about a fortieth of its channels."""
    narrower = widths.copy()
    full = int(model.full[index])
    for wanted in range(int(widths[index]) - max(full // 40, 1), -full, -1):
        width = _allowed(full, wanted, settings)
        if width < widths[index]:
            narrower[index] = width
            break
    return narrower


def _next_up(model: CostModel, settings: ShrinkSection, widths: Floats, index: int) -> Floats:
    wider = widths.copy()
    full = int(model.full[index])
    for wanted in range(int(widths[index]) + 1, full + 1):
        width = _allowed(full, wanted, settings)
        if width > widths[index]:
            wider[index] = width
            break
    return wider


def _fill(budget: Budget, model: CostModel, settings: ShrinkSection, widths: Floats) -> Floats:
    """Give single groups their next width while the budget has room: the least widened group first."""
    while True:
        shares = widths / model.full
        for index in np.argsort(shares, kind="stable"):
            wider = _next_up(model, settings, widths, int(index))
            if wider[index] > widths[index] and model.cost(wider, budget.metric) <= budget.limit:
                widths = wider
                break
        else:
            return widths


def _exchange(budget: Budget, model: CostModel, settings: ShrinkSection, widths: Floats) -> Floats:
    """Where steps are coarse: widen one group and narrow others for it, if that comes closer to the limit."""

    def cost(choice: Floats) -> float:
        return model.cost(choice, budget.metric)

    best, least = widths, least_widths(model, settings)
    for index in range(len(widths)):
        trial = _next_up(model, settings, widths, index)
        while cost(trial) > budget.limit:
            others = [i for i in range(len(trial)) if i != index and trial[i] > least[i]]
            options = [_next_down(model, settings, trial, i) for i in others]
            within = [o for o in options if cost(o) <= budget.limit]
            if not options:
                break
            trial = max(within, key=cost) if within else min(options, key=cost)
        if cost(best) < cost(trial) <= budget.limit:
            best = trial
    return _fill(budget, model, settings, best)
