"""Budgets for training loops of a user's own."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel
from pcshrink.budget.latency import Search, choose
from pcshrink.budget.latency_target import LatencyTarget
from pcshrink.errors import ConfigError, ShrinkWarning
from pcshrink.measure.layers import LayerTable
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
        ConfigError: The budget is unknown, out of reach, or more than the dense network costs.
    """
    if not isinstance(shrinker, Shrinker):
        message = f"set_budget takes what attach_ gave, got {type(shrinker).__name__}"
        raise ConfigError(message)
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
    if config.latency is not None or shrinker.method.priced_by == "latency":
        search = Search(
            shrinker, example_input, LayerTable(config.runtime, config.threads), shrinker.align,
            shrinker.config.min_channels,
        )  # fmt: skip
        costs.set_times(search.times())
    if config.latency is not None:
        target: CostTarget = _latency_target(config, shrinker, costs, search)
    else:
        target = CostTarget(Limit.of(config, shrinker, example_input), costs, shrinker.config, shrinker.align, gates)
    target.check()
    if shrinker.method.priced_by is not None:
        shrinker.method.set_prices(costs.prices(shrinker.method.priced_by))
    shrinker.method.set_target(target)
    for concern in shrinker.method.concerns():
        warnings.warn(concern, ShrinkWarning, stacklevel=2)
    return target


def _latency_target(config: BudgetConfig, shrinker: Shrinker, costs: CostModel, search: Search) -> LatencyTarget:
    share = config.latency or 1.0
    return LatencyTarget(
        Limit(config, share * search.whole, search.whole), costs, shrinker.config, shrinker.align, "fold",
        choose=lambda family: choose(search, share, family or search.widths).keep,
    )  # fmt: skip
