"""Budgets for training loops of a user's own."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal

from pcshrink.budget.allocate import CostTarget
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel, LayerTimes
from pcshrink.budget.latency import Family, Search, choose
from pcshrink.budget.target import target_of, tell_prices
from pcshrink.errors import ConfigError, ShrinkWarning
from pcshrink.measure.layers import LayerTable
from pcshrink.methods.base import Method
from pcshrink.shrinker import Shrinker


def set_budget(
    shrinker: Shrinker, example_input: Any, *, gates: Literal["keep", "fold"] = "keep", **budget: Any
) -> CostTarget:
    """Let a shrinker meet a budget by the end of its ``total_steps``; call it before the first step.

    Args:
        shrinker: What ``attach_`` gave.
        example_input: As for ``attach_``.
        gates: Whether the gates will be kept in the compact model, and so count, or folded.
        **budget: One of ``madds``, ``params`` and ``mem_access``, a share of the dense network (up to 1) or a number;
            and ``convention``. Or ``latency``, a share of the dense network's measured time; with ``runtime`` and
            ``threads``, for the batch of the example input and folded gates.

    A ``ShrinkWarning`` says where the steps are too few for the push.

    Returns:
        The limit, and what any choice of widths costs.

    Raises:
        ConfigError: The method takes no budget, or it is unknown, out of reach, or more than the dense network costs.
    """
    if not isinstance(shrinker, Shrinker):
        message = f"set_budget takes what attach_ gave, got {type(shrinker).__name__}"
        raise ConfigError(message)
    _check_takes_budget(shrinker.method)
    try:
        config = BudgetConfig(**budget)
    except TypeError as error:
        names = ", ".join(budget)
        message = f"unknown budget {names}: give one of madds, params, mem_access and latency, such as madds=0.5"
        raise ConfigError(message) from error
    if config.latency is not None and gates != "fold":
        message = 'a latency budget needs gates="fold", since gates take time of their own'
        raise ConfigError(message)
    costs = CostModel.of(shrinker, example_input, gates=gates, convention=config.convention)
    watch = _Watch(shrinker, example_input, config)
    target = target_of(config, shrinker, example_input, costs, watch, gates=gates)
    tell_prices(shrinker, costs, watch)
    shrinker.method.set_target(target)
    for concern in shrinker.method.concerns():
        warnings.warn(concern, ShrinkWarning, stacklevel=2)
    return target


def _check_takes_budget(method: Method[Any]) -> None:
    name = method.config.method
    if not method.takes_budget():
        setting = method.budget_by.partition("; ")[2].replace("shrink.", "")
        message = f"method {name} takes no budget; {setting} instead"
        raise ConfigError(message)
    if not method.static:
        message = (
            f"method {name} chooses for each input, so a budget is met by measuring images while it trains, which "
            "set_budget cannot do; give shrink.budget in a recipe, or set how much is skipped by the method's own "
            "settings"
        )
        raise ConfigError(message)


class _Watch:
    """Measures where the budget says; nothing where nobody asks."""

    def __init__(self, shrinker: Shrinker, example_input: object, budget: BudgetConfig) -> None:
        self.shrinker, self.example, self.budget = shrinker, example_input, budget

    @functools.cached_property
    def search(self) -> Search:
        return Search(self.shrinker, self.example, LayerTable(self.budget.runtime, self.budget.threads))

    def times(self) -> LayerTimes:
        return self.search.times()

    def widths(self, family: Family | None) -> dict[str, int]:
        return choose(self.search, self.budget.latency or 1.0, family or self.search.widths).keep
