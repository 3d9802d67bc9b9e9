"""Which widths this machine likes: time per multiply-add by number of channels."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pcshrink.common.tables import text_table
from pcshrink.errors import ConfigError
from pcshrink.measure.timing import clock_for, interleave
from pcshrink.runtime.registry import DEFAULT_RUNTIME, RuntimeLike
from pcshrink.runtime.run import check_runtime, ready, use_threads

log = logging.getLogger(__name__)

WIDTHS = (64, 60, 56, 52, 48, 45, 44, 40, 37, 36, 32)
PASSES = 8
MULTIPLES = (1, 2, 4, 8, 16, 32)
# Widths count as good if a multiply-add takes at most so much longer than at the best ones.
TOLERANCE = 1.15


@dataclass(frozen=True, kw_only=True)
class Staircase:
    """Time per multiply-add by width.

    Attributes:
        nanoseconds: Width -> nanoseconds per 1000 multiply-adds.
        align: The smallest number all of whose multiples are good widths.
        runtime: Where it was measured.
    """

    nanoseconds: dict[int, float]
    align: int
    runtime: str

    def __str__(self) -> str:
        """Time by width as a table, and what follows."""
        best = min(self.nanoseconds.values())
        rows = [[str(width), f"{ns:.1f}", f"{ns / best:.2f}"] for width, ns in self.nanoseconds.items()]
        table = text_table(rows, ">", head=["channels", "ns / 1000 madds", "x best"])
        return f"{table}\nalign: {self.align} ({self.runtime})"


def measure_staircase(
    runtime: RuntimeLike = DEFAULT_RUNTIME, *, threads: int | None = None, size: int = 28, seconds: float = 0.4
) -> Staircase:
    """Time a stack of 3x3 convolutions at several widths, in turns.

    Args:
        runtime: Where the network will run.
        threads: How many threads; None: as many as torch uses now.
        size: Height and width of the feature map.
        seconds: About how long to measure each width.
    """
    place = check_runtime(runtime)
    with use_threads(threads) as count, torch.random.fork_rng(devices=[]):
        calls = {str(width): ready(_stack(width), torch.randn(1, width, size, size), place, count) for width in WIDTHS}
        best = _least_times(calls, seconds, clock_for(count))
    nanoseconds = {width: 1e12 * best[str(width)] / (4 * 9 * width * width * size * size) for width in WIDTHS}
    return Staircase(nanoseconds=nanoseconds, align=choose(nanoseconds), runtime=place.name)


def _least_times(calls: dict[str, Any], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """The least time of each; measured again as long as a pass still finds a time that is clearly less."""
    best = {name: min(taken) for name, taken in interleave(calls, seconds / 2, clock=clock).items()}
    for _ in range(PASSES):
        least = {name: min(taken) for name, taken in interleave(calls, seconds / 2, clock=clock).items()}
        settled = all(least[name] > 0.97 * best[name] for name in calls)
        best = {name: min(least[name], best[name]) for name in calls}
        if settled:
            break
    return best


@functools.cache
def measure_alignment(runtime: RuntimeLike = DEFAULT_RUNTIME, threads: int | None = None) -> int:
    """The alignment that suits this machine and runtime, measured once in a process; about three seconds."""
    return measure_staircase(runtime, threads=threads).align


def auto_alignment(runtime: RuntimeLike | None = None) -> int:
    """The number that ``align: auto`` stands for on this machine, on one thread.

    Args:
        runtime: Where the network will run, if that is known. If not, the usual one is taken, or torch itself where
            that is not installed.

    Raises:
        ConfigError: The runtime that was named cannot run here.
    """
    return measure_alignment(_installed_default() if runtime is None else runtime, threads=1)


def _installed_default() -> str:
    try:
        check_runtime(DEFAULT_RUNTIME)
    except ConfigError:
        log.info("align: auto is measured in eager torch, since %s is not installed", DEFAULT_RUNTIME)
        return "eager"
    return DEFAULT_RUNTIME


def choose(nanoseconds: dict[int, float]) -> int:
    """The smallest number whose multiples are all about as good as the best width.

    Example:
        >>> choose({64: 17.8, 56: 23.4, 48: 17.8, 45: 25.6, 40: 25.6, 37: 26.6, 32: 17.8})
        16
    """
    steps: dict[int, list[float]] = {}
    for width, ns in nanoseconds.items():
        steps.setdefault(max(m for m in MULTIPLES if width % m == 0), []).append(ns)
    means = {multiple: sum(times) / len(times) for multiple, times in steps.items()}
    good, best = MULTIPLES[-1], min(means.values())
    for multiple in sorted(means, reverse=True):  # down the stairs until one is worse
        if means[multiple] > TOLERANCE * best:
            break
        good = multiple
    return good


def _stack(width: int) -> nn.Module:
    convs = [layer for _ in range(4) for layer in (nn.Conv2d(width, width, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*convs)
