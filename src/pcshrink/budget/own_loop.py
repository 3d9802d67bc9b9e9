"""Budgets for training loops of a user's own."""

from __future__ import annotations

from typing import Any, Literal

from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel
from pcshrink.errors import ConfigError
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
            and ``convention``.

    Returns:
        The limit, and what any choice of widths costs.

    Raises:
        ConfigError: The budget is unknown, out of reach, or more than the dense network costs.
    """
    try:
        config = BudgetConfig(**budget)
    except TypeError as error:
        message = f"unknown budget {', '.join(budget)}: give one of madds, params and mem_access, such as madds=0.5"
        raise ConfigError(message) from error
    if config.latency is not None:
        message = "a latency budget needs the trainer, which measures layers; give madds, params or mem_access here"
        raise ConfigError(message)
    costs = CostModel.of(shrinker, example_input, gates=gates, convention=config.convention)
    target = CostTarget(Limit.of(config, shrinker, example_input), costs, shrinker.config, shrinker.align, gates)
    target.check()
    if shrinker.method.priced_by is not None:
        shrinker.method.set_prices(costs.prices(shrinker.method.priced_by))
    shrinker.method.set_target(target)
    return target
