"""From what the compact network may cost to how many channels each group keeps."""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pcshrink.budget.config import TOLERANCE, BudgetConfig
from pcshrink.budget.cost_model import CostModel, Floats, cost_of
from pcshrink.config import MethodConfig, Metric
from pcshrink.errors import ConfigError, OutOfReachError
from pcshrink.methods.select import count
from pcshrink.shrinker import Shrinker

MOST_EXCHANGES = 8
GROUPS_CHANGED = ((16, 3), (64, 2), (math.inf, 1))  # up to so many groups in the network, so many in one exchange
FREEDOM = 0.8  # the least widths cost at most this share of the limit, so that groups can differ


@dataclass
class Limit:
    """A budget as numbers.

    Attributes:
        config: What the user said.
        limit: The largest cost allowed.
        dense: What the uncompressed network costs.
    """

    config: BudgetConfig
    limit: float
    dense: float

    @classmethod
    def of(cls, config: BudgetConfig, shrinker: Shrinker, example_input: object) -> Limit:
        """Turn a share into a number; the model must still have its original widths.

        Raises:
            ConfigError: The limit allows the whole network.
        """
        dense = cost_of(shrinker.dense(), example_input, config.metric, config.convention)
        limit = config.amount * dense if config.amount <= 1 else config.amount
        if limit >= dense:
            message = (
                f"shrink.budget.{config.metric}: {limit:,.0f} is no less than what the dense network costs, "
                f"{dense:,.0f} ({config.convention} convention), so nothing would shrink"
            )
            raise ConfigError(message)
        return cls(config, limit, float(dense))

    @property
    def metric(self) -> Metric:
        """What is limited."""
        return self.config.metric


@dataclass
class CostTarget:
    """A limit together with the network it is for: what a method is given to meet.

    Attributes:
        budget: The limit.
        model: The cost as a function of the widths.
        rules: Least widths.
        align: What widths are multiples of, by group.
        gates: "keep" or "fold", for messages.
    """

    budget: Limit
    model: CostModel
    rules: MethodConfig
    align: Mapping[str, int]
    gates: str = "keep"

    @property
    def dense(self) -> float:
        """What the uncompressed network costs."""
        return self.budget.dense

    @property
    def limit(self) -> float:
        """What the compact one may cost."""
        return self.budget.limit

    def cost(self, keep: Mapping[str, float]) -> float:
        """What the network costs when the groups keep so many channels."""
        return self.model.cost(self.model.widths(keep), self.budget.config.quantity)

    def cost_of(self, widths: Floats) -> float:
        """The same for an array of widths."""
        return self.model.cost(widths, self.budget.config.quantity)

    def allowed(self, index: int, wanted: float) -> int:
        """A group's width nearest to the wanted one: aligned where the group is large enough, never too small."""
        full = int(self.model.full[index])
        ratio = min(max(1 - wanted / full, 0.0), 1.0)
        return max(full - count(ratio, full, self.rules.min_channels, self.align[self.model.names[index]]), 1)

    def at(self, ratio: float) -> Floats:
        """All groups at one keep ratio."""
        return np.array([self.allowed(i, ratio * w) for i, w in enumerate(self.model.full)], dtype=np.float64)

    @property
    def least(self) -> Floats:
        """The fewest channels each group may keep."""
        return self.at(0.0)

    def check(self) -> None:
        """Refuse a budget no choice of widths can meet.

        Raises:
            OutOfReachError: With the smallest value that can be reached.
        """
        least = self.cost_of(self.least)
        if least > self.limit * (1 + TOLERANCE):
            steps = sorted(set(self.align.values()) - {1})
            why = ", ".join([f"min_channels {self.rules.min_channels}", *(f"align {step}" for step in steps)])
            message = (
                f"shrink.budget.{self.budget.metric}: {self.limit:,.0f} cannot be reached; the smallest possible here "
                f"is {least:,.0f}, a share of {least / self.dense:.3f} of the dense {self.dense:,.0f} "
                f"({self.budget.config.convention} convention, {why}, gates: {self.gates})"
            )
            raise OutOfReachError(message)

    def widths(
        self, scores: Mapping[str, Tensor] | None = None, least: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """How many channels each group keeps so that the budget is met as closely as the widths allow.

        Args:
            scores: What the channels are worth, by group; without, all groups give the same share.
            least: The fewest channels each group may keep; as few as the settings allow by default.
        """
        self.check()
        floor = self.least if least is None else self.model.widths(least)
        if scores is None:
            return self._named(_fill(self, _widest(self, self.at)), floor)
        return self._named(_fill(self, _by_scores(self, scores, floor), scores), floor, scores)

    def widest(self, family: Callable[[float], Mapping[str, float]]) -> dict[str, int]:
        """The widest of a family of widths that meets the limit, with single channels added while there is room.

        Args:
            family: From a share between 0 and 1 to how many channels each group would keep; grows with the share.
        """
        self.check()

        def at(share: float) -> Floats:
            wanted = family(share)
            allowed = [self.allowed(i, wanted[name]) for i, name in enumerate(self.model.names)]
            return np.array(allowed, dtype=np.float64)

        return self._named(_fill(self, _widest(self, at)), self.least)

    @property
    def enough(self) -> float:
        """What close widths cost at least: the limit but for the tolerance, or what the whole network costs."""
        return (1 - TOLERANCE) * min(self.limit, self.cost_of(self.model.full))

    def _named(self, widths: Floats, least: Floats, scores: Mapping[str, Tensor] | None = None) -> dict[str, int]:
        """Meet the limit closely, where steps are coarse by exchange; by group."""
        if self.cost_of(widths) < self.enough:
            widths = _exchange(self, widths, least, scores)
        return {name: int(width) for name, width in zip(self.model.names, widths, strict=True)}

    def floors(self, ratio: float) -> dict[str, int]:
        """The fewest channels each group may keep: a share of it, less where the limit needs more to leave."""
        self.check()
        keep = 1 - ratio
        while keep > 0 and self.cost_of(self.at(keep)) > FREEDOM * self.limit:
            keep -= 0.02
        widths = self.at(max(keep, 0.0))
        return {name: int(width) for name, width in zip(self.model.names, widths, strict=True)}


def _widest(target: CostTarget, at: Callable[[float], Floats]) -> Floats:
    """Bisect on a share that widths grow with; the widest choice within the limit."""
    low, high = 0.0, 1.0
    if target.cost_of(at(high)) <= target.limit:
        return at(high)
    for _ in range(30):
        middle = (low + high) / 2
        if target.cost_of(at(middle)) <= target.limit:
            low = middle
        else:
            high = middle
    return at(low)


def _by_scores(target: CostTarget, scores: Mapping[str, Tensor], least: Floats) -> Floats:
    """Take away what is worth the least for its cost, step by step, until the limit is met."""
    widths, full = target.model.full.copy(), target.model.full
    orders = [np.sort(scores[name].double().cpu().numpy()) for name in target.model.names]
    cost = target.cost_of(widths)

    def price(index: int) -> float:
        """Worth lost for each unit of cost saved by the group's next step down."""
        narrower = _next_down(target, widths, index)
        saved = cost - target.cost_of(narrower)
        gone = int(full[index] - widths[index])
        step = int(widths[index] - narrower[index])
        lost = float(orders[index][gone : gone + step].sum()) + 1e-9 * step
        return lost / max(saved, 1e-9)

    heap = [(price(i), i) for i in range(len(widths)) if widths[i] > least[i]]
    heapq.heapify(heap)
    while heap and cost > target.limit:
        _, index = heapq.heappop(heap)
        now = price(index)
        if heap and now > heap[0][0]:
            heapq.heappush(heap, (now, index))
            continue
        widths = _next_down(target, widths, index)
        cost = target.cost_of(widths)
        if widths[index] > least[index]:
            heapq.heappush(heap, (price(index), index))
    return widths


def _next_down(target: CostTarget, widths: Floats, index: int) -> Floats:
    """The group narrower by one step, about a fortieth of its channels."""
    narrower = widths.copy()
    full = int(target.model.full[index])
    for wanted in range(int(widths[index]) - max(full // 40, 1), -full, -1):
        width = target.allowed(index, wanted)
        if width < widths[index]:
            narrower[index] = width
            break
    return narrower


def _next_up(target: CostTarget, widths: Floats, index: int) -> Floats:
    wider = widths.copy()
    full = int(target.model.full[index])
    for wanted in range(int(widths[index]) + 1, full + 1):
        width = target.allowed(index, wanted)
        if width > widths[index]:
            wider[index] = width
            break
    return wider


def _fill(target: CostTarget, widths: Floats, scores: Mapping[str, Tensor] | None = None) -> Floats:
    """Give single groups their next width while the budget has room: the narrowest first, or the worthiest channel."""
    ranked = None if scores is None else [np.sort(scores[n].double().cpu().numpy()) for n in target.model.names]
    while True:
        if ranked is None:
            order = np.argsort(widths / target.model.full, kind="stable")
        else:
            next_up = [worth[max(len(worth) - int(w) - 1, 0)] for worth, w in zip(ranked, widths, strict=True)]
            order = np.argsort([-worth for worth in next_up], kind="stable")
        for index in order:
            wider = _next_up(target, widths, int(index))
            if wider[index] > widths[index] and target.cost_of(wider) <= target.limit:
                widths = wider
                break
        else:
            return widths


def _exchange(target: CostTarget, widths: Floats, least: Floats, scores: Mapping[str, Tensor] | None) -> Floats:
    """Where steps are coarse: widen some groups and narrow others for them, if that comes closer to the limit.

    Of the choices that are close enough, that which keeps the most worth; without scores, the closest.
    """
    enough, worth = target.enough, None if scores is None else _worth_of(target, scores)

    def goodness(choice: Floats) -> tuple[bool, float]:
        cost = target.cost_of(choice)
        if cost > target.limit:
            return False, -cost
        close = cost >= enough
        return close, worth(choice) if close and worth is not None else cost

    best = goodness(widths)
    for _ in range(MOST_EXCHANGES):
        if best[0] and worth is None:
            break
        good, other = max(
            ((goodness(o), o) for o in _neighbours(target, widths, least)),
            key=operator.itemgetter(0),
            default=(best, widths),
        )
        if good <= best:
            break
        best, widths = good, other
    return _fill(target, widths, scores)


def _neighbours(target: CostTarget, widths: Floats, least: Floats) -> Iterator[Floats]:
    """All choices in which a few groups are one step wider or narrower; the fewer, the more groups there are."""
    together = next(groups for most, groups in GROUPS_CHANGED if len(widths) <= most)
    every = range(len(widths))
    steps = [(i, width) for i in every if (width := _next_up(target, widths, i)[i]) > widths[i]]
    steps += [(i, width) for i in every if least[i] <= (width := _next_down(target, widths, i)[i]) < widths[i]]
    for changed in range(1, together + 1):
        for some in itertools.combinations(steps, changed):
            if len({index for index, _ in some}) < changed:
                continue  # one group cannot be both
            choice = widths.copy()
            for index, width in some:
                choice[index] = width
            yield choice


def _worth_of(target: CostTarget, scores: Mapping[str, Tensor]) -> Callable[[Floats], float]:
    """What the worthiest channels of given widths are worth together."""
    kept = [
        np.concatenate([[0.0], np.cumsum(np.sort(scores[name].double().cpu().numpy())[::-1])])
        for name in target.model.names
    ]
    return lambda widths: float(sum(sums[int(width)] for sums, width in zip(kept, widths, strict=True)))
