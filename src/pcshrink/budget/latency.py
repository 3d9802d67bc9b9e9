"""How many channels each group may keep so that the whole compact network takes a given share of the time."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from pcshrink.budget.config import LATENCY_TOLERANCE
from pcshrink.budget.cost_model import LayerTimes
from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError
from pcshrink.measure.latency import compare
from pcshrink.measure.layers import Layer, LayerTable, layers_of, narrowed
from pcshrink.measure.timing import clock_for
from pcshrink.methods.select import count
from pcshrink.runtime.registry import DEFAULT_RUNTIME, RuntimeLike
from pcshrink.runtime.run import use_threads
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_
from pcshrink.surgery.plan import PrunePlan

log = logging.getLogger(__name__)

STEPS = 9  # halvings of the keep ratio: finer than any width
FREE = 0.002  # a wider group that adds less than this share of the time costs nothing
TRIES = 5  # corrections by measuring the whole network
NARROW = 0.5  # keep ratio at which layers are measured besides their full width

Family = Callable[[float], dict[str, int]]  # from a predicted share of the time to the widths that take it


class _Group(Protocol):
    name: str
    channels: int


class HasGroups(Protocol):
    """What is used of a Shrinker."""

    model: nn.Module
    config: MethodConfig

    @property
    def align(self) -> Mapping[str, int]:
        """What kept widths are multiples of, by group."""
        ...

    @property
    def groups(self) -> Sequence[_Group]:
        """The groups that shrink."""
        ...

    def dense(self) -> nn.Module:
        """The network without gates and without layers of a method's own."""
        ...

    def plan(self, keep: Mapping[str, Tensor] | None = None) -> PrunePlan:
        """What stays."""
        ...


@dataclass(frozen=True, kw_only=True)
class LatencyChoice:
    """Widths for a latency budget, and how well they meet it.

    Attributes:
        keep: Group name -> how many channels it keeps.
        asked: Latency of the compact network as a share of the dense one's, as asked for.
        reached: The same, measured on whole networks with these widths.
        low: Lower end of its 99 % interval.
        high: Upper end.
        dense_ms: Latency of the dense network.
        compact_ms: Latency with these widths.
        met: Whether the share reached is within 5 % of the share asked for, or below it.
        note: Why not, if not.
    """

    keep: dict[str, int]
    asked: float
    reached: float
    low: float
    high: float
    dense_ms: float
    compact_ms: float
    met: bool
    note: str


def choose_widths(
    shrinker: HasGroups,
    example_input: object,
    share: float,
    *,
    runtime: RuntimeLike = DEFAULT_RUNTIME,
    threads: int | None = None,
    align: int | None = None,
    min_channels: int | None = None,
    seconds: float = 1.0,
    table: LayerTable | None = None,
) -> LatencyChoice:
    """Find widths with which the folded compact network takes ``share`` of the dense network's time.

    A table of measured layer times, filled as it is needed, decides the widths; the whole network is then built
    with them and timed beside the dense one, and the aim corrected until it is met.

    Args:
        shrinker: What ``attach_`` gave, before anything was cut.
        example_input: A tensor, or a tuple of arguments; its batch size is what is measured.
        share: The wanted latency as a share of the dense network's, for example 0.5.
        runtime: Where the network will run.
        threads: How many threads; None: as many as torch uses now.
        align: Widths are multiples of this where the group is large enough; by default what the shrinker's are.
        min_channels: The fewest channels that a group keeps; by default as many as the shrinker keeps.
        seconds: About how long to measure the whole networks, each time.
        table: Layer times already measured; it is filled further.

    Raises:
        ConfigError: The share is not between 0 and 1, or the runtime is unknown.
    """
    if not 0 < share < 1:
        message = f"a latency budget must be a share above 0 and below 1, got {share!r}"
        raise ConfigError(message)
    search = Search(shrinker, example_input, table or LayerTable(runtime, threads), align, min_channels)
    return choose(search, share, search.widths, seconds=seconds)


def choose(search: Search, share: float, family: Family, *, seconds: float = 1.0) -> LatencyChoice:
    """Take the widths out of a family with which the whole network is measured to take a share of the dense time.

    Args:
        search: What builds and times networks.
        share: The wanted latency as a share of the dense network's.
        family: From a predicted share to widths.
        seconds: About how long to measure the whole networks, each time.
    """
    best: LatencyChoice | None = None
    aim = share
    tried: list[tuple[float, float]] = []  # aims, and the shares that they reached
    for _ in range(TRIES):
        keep = family(aim)
        choice = _measure(search, keep, share, keep == family(0.0), seconds)
        log.info("latency budget: aimed at %.3f, reached %.3f", aim, choice.reached)
        if best is None or _miss(choice) < _miss(best):
            best = choice
        if _miss(choice) <= LATENCY_TOLERANCE / 2:
            break
        tried.append((aim, choice.reached))
        closer = _closer(tried, share)
        if family(closer) == keep:
            break
        aim = closer
    assert best is not None
    return best


def _closer(tried: list[tuple[float, float]], share: float) -> float:
    """Where to aim next: between the nearest aims that were too fast and too slow, or in proportion."""
    fast = max((pair for pair in tried if pair[1] <= share), default=None)
    slow = min((pair for pair in tried if pair[1] > share), default=None)
    if fast is not None and slow is not None and slow[0] > fast[0]:
        return fast[0] + (slow[0] - fast[0]) * (share - fast[1]) / (slow[1] - fast[1])
    aim, reached = tried[-1]
    return min(max(aim * share / reached, 0.3 * aim), 0.999)


def _miss(choice: LatencyChoice) -> float:
    return abs(choice.reached / choice.asked - 1)


def _measure(search: Search, keep: dict[str, int], share: float, narrowest: bool, seconds: float) -> LatencyChoice:
    models = {"dense": search.dense, "compact": search.cut(keep)}
    table = search.table
    with use_threads(table.threads) as threads:
        clock = clock_for(threads)
    timed = compare(models, search.example, table.runtime, threads=table.threads, seconds=seconds, clock=clock)
    ratio = timed.ratio("compact", "dense")
    met = ratio.value <= share * (1 + LATENCY_TOLERANCE)
    note = "" if met else f"reached {ratio.value:.3f} of the dense latency instead of {share:.3f}: " + (
        "the groups cannot get narrower" if narrowest else "widths come in steps, and time with them"
    )  # fmt: skip
    return LatencyChoice(
        keep=keep, asked=share, reached=ratio.value, low=ratio.low, high=ratio.high,
        dense_ms=timed.results["dense"].median_ms, compact_ms=timed.results["compact"].median_ms,
        met=met, note=note,
    )  # fmt: skip


class Search:
    """Predicts the latency of any widths from the table, and finds the widths for a predicted share.

    Args:
        shrinker: What ``attach_`` gave.
        example_input: A tensor, or a tuple of arguments.
        table: Layer times; it is filled as it is needed.
        align: Widths are multiples of this where the group is large enough; by default what the shrinker's are.
        min_channels: The fewest channels that a group keeps; by default as many as the shrinker keeps.
        dense: What compact networks are timed beside; by default the shrinker's network as it is now.
    """

    def __init__(
        self,
        shrinker: HasGroups,
        example_input: object,
        table: LayerTable,
        align: int | None = None,
        min_channels: int | None = None,
        *,
        dense: nn.Module | None = None,
    ) -> None:
        self.shrinker, self.example, self.table = shrinker, example_input, table
        self.align = shrinker.align if align is None else {group.name: align for group in shrinker.groups}
        self.min_channels = shrinker.config.min_channels if min_channels is None else min_channels
        self.dense = shrinker.dense().eval() if dense is None else dense
        self.layers = layers_of(self.cut({}), example_input)
        self.known: dict[float, dict[str, int]] = {}

    @functools.cached_property
    def whole(self) -> float:
        """Seconds of the dense network's layers."""
        return self.table.total(layers_of(self.dense, self.example))

    def times(self) -> LayerTimes:
        """What each layer takes as a line through its times at two widths; the network must not be cut yet."""
        narrow = narrowed(self.layers, self.plan(self.at(NARROW)))
        self.table.total(self.layers)
        self.table.total(narrow)
        fixed, each = {}, {}
        for name, calls in self.layers.items():
            long, short = (sum(self.table.times[call] for call in seen) for seen in (calls, narrow[name]))
            numbers, fewer = _numbers(calls[0]), _numbers(narrow[name][0])
            each[name] = max(long - short, 0.0) / (numbers - fewer) if fewer < numbers else 0.0
            fixed[name] = long - each[name] * numbers
        return LayerTimes(self.whole, fixed, each)

    def plan(self, keep: Mapping[str, int]) -> PrunePlan:
        """A plan with these widths; which channels stay does not matter here."""
        flags = {
            group.name: torch.arange(group.channels) < keep[group.name]
            for group in self.shrinker.groups
            if group.name in keep
        }
        return self.shrinker.plan(flags)

    def cut(self, keep: Mapping[str, int]) -> nn.Module:
        """The compact network with these widths, without gates."""
        small = apply_plan(self.shrinker.model, self.plan(keep))
        remove_gates_(small)
        return small.eval()

    def at(self, ratio: float) -> dict[str, int]:
        """All groups at one keep ratio, rounded to allowed widths."""
        return {
            g.name: g.channels - count(1 - ratio, g.channels, max(self.min_channels, 1), self.align[g.name])
            for g in self.shrinker.groups
        }

    def predict(self, keep: Mapping[str, int]) -> float:
        """Time of the layers with these widths, as a share of the dense network's."""
        return self.table.total(narrowed(self.layers, self.plan(keep))) / self.whole

    def widths(self, share: float) -> dict[str, int]:
        """The widest allowed choice that is predicted to take at most this share."""
        if share not in self.known:
            low, high = 0.0, 1.0
            for _ in range(STEPS):
                middle = (low + high) / 2
                if share > 0 and self.predict(self.at(middle)) <= share:
                    low = middle
                else:
                    high = middle
            self.known[share] = self._give_back(self.at(low), share) if share else self.at(low)
        return self.known[share]

    def _give_back(self, keep: dict[str, int], share: float) -> dict[str, int]:
        """Widen the groups whose narrowing saved no time, and others as far as the share allows."""
        now = self.predict(keep)
        for ratio in (1.0, 0.75, 0.5):
            for name, wider in self.at(ratio).items():
                if wider > keep[name]:
                    tried = keep | {name: wider}
                    predicted = self.predict(tried)
                    if predicted <= max(share, now * (1 + FREE)):
                        keep, now = tried, predicted
        return keep


def _numbers(layer: Layer) -> int:
    """How many numbers the kernel has."""
    return math.prod((layer.width_out, layer.width_in // layer.groups, *layer.kernel))
