"""Time several things fairly: warm-up, interleaved rounds, medians with intervals, and no claim inside the noise."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

BLOCK_SECONDS = 0.004  # a round calls each candidate until this much time has passed
WARM_SECONDS = 0.15
LEAST_ROUNDS, MOST_ROUNDS = 15, 400
CONFIDENCE = 0.99
# Two builds of the same network differ by up to this much in where their memory happens to lie.
MARGIN = 0.01

Verdict = Literal["faster", "slower", "no difference beyond the noise"]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How long one thing takes, as a multiple of another; both timed in the same rounds.

    Attributes:
        value: Median over the rounds.
        low: Lower end of the 99 % interval of that median.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """What may be claimed: a difference only where the whole interval lies beyond one percent."""
        if self.high < 1 - MARGIN:
            return "faster"
        return "slower" if self.low > 1 + MARGIN else "no difference beyond the noise"

    def __str__(self) -> str:
        """Value, interval and verdict."""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] {self.verdict}"


def interleave(
    calls: Mapping[str, Callable[[], Any]],
    seconds: float,
    least_rounds: int = LEAST_ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time all candidates in turns, so that what disturbs the machine disturbs them alike.

    Args:
        calls: Name -> what to time.
        seconds: About how long to measure each of them.
        least_rounds: Measure so many rounds however long they take.
        clock: What to time with. ``time.process_time`` does not count the time given to other processes, so for a
            single thread it is the better clock on a busy machine.

    Returns:
        Name -> seconds per call, one for each round; the same rounds for all.
    """
    warm = min(WARM_SECONDS, seconds / 2)
    repeats = {name: _warm_up(call, warm) for name, call in calls.items()}
    cost = {name: _block(call, repeats[name], clock) * repeats[name] for name, call in calls.items()}
    rounds = int(seconds * len(calls) / max(sum(cost.values()), 1e-9))
    rounds = min(max(rounds, least_rounds), MOST_ROUNDS)
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, draw = list(calls), random.Random(0)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            # Every second round runs backwards: whoever came first comes last.
            draw.shuffle(order) if number % 2 == 0 else order.reverse()
            for name in order:
                times[name].append(_block(calls[name], repeats[name], clock))
    finally:
        if collecting:
            gc.enable()
    return times


def clock_for(threads: int) -> Callable[[], float]:
    """The clock for a choice that must not depend on what else runs: CPU time where a single thread works."""
    return time.process_time if threads == 1 else time.perf_counter


def _warm_up(call: Callable[[], Any], seconds: float) -> int:
    """Call until things have settled; how many calls fill a block."""
    taken: list[float] = []
    start = time.perf_counter()
    while len(taken) < (3 if sum(taken) < 1 else 2) or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    return max(1, math.ceil(BLOCK_SECONDS / max(statistics.median(taken), 1e-9)))


def _block(call: Callable[[], Any], repeat: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeat):
        call()
    return (clock() - start) / repeat


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The median, and an interval for it that assumes nothing about the distribution (order statistics).

    Example:
        >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], confidence=0.95)
        (5.0, 2.0, 8.0)
    """
    ordered = sorted(values)
    count, outside, rank = len(ordered), 0.0, 0
    # The median lies below the k-th smallest value with the probability of fewer than k heads in n throws.
    while rank < count // 2:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - confidence:
            break
        rank += 1
    low, high = (ordered[rank - 1], ordered[count - rank]) if rank else (ordered[0], ordered[-1])
    return statistics.median(ordered), low, high


def settled(values: Sequence[float]) -> float:
    """The time without what else the machine is doing: the 5th percentile, since disturbances only add.

    For a single figure that decides something; what is *reported* is always the median with its interval.
    """
    return sorted(values)[len(values) // 20]


def paired_ratio(times: Sequence[float], reference: Sequence[float]) -> Ratio:
    """One thing's time as a multiple of another's, round by round."""
    ratios = [one / other for one, other in zip(times, reference, strict=True)]
    value, low, high = median_interval(ratios)
    return Ratio(value=value, low=low, high=high)
