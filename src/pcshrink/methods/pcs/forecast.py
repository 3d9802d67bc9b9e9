"""How a budget steers learned widths: the rate at which the forecast meets it.

The penalty alone would lower every pushed salience alike. What a salience has risen above that is the task's own
doing, and goes on. So it can be said of every channel how much more push would bring it to zero by the time the widths
are fixed, and which push would bring so many to zero that the budget is met. What the task holds on to asks for more
and more of it, and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from pcshrink.methods.landing import LAND_AT

READY_AT = 0.6  # share of the phase after which what must go should be dead, some time before the widths are fixed
NEAREST = 0.05  # share of the phase that a forecast looks ahead at least
EARLY = 0.05  # share of the phase in which nothing is known yet of what the task wants
WINDOW = 0.02  # share of the phase over which it is measured how the task resists at the moment
FIRMEST = 10.0  # how much more than on average so far the task may be taken to resist


def ramp(progress: float) -> float:
    """The rate's share of its largest value: at first the task decides alone."""
    return min(progress / LAND_AT, 1.0)


def ramp_ahead(progress: float) -> float:
    """What the ramp adds up to in the time that is left, in shares of the phase."""
    until = _until(progress)
    return (until - progress) * (ramp(progress) + ramp(until)) / 2


def held_by_task(saliences: Tensor, start: float, pushed: Tensor, progress: float) -> Tensor:
    """How fast the task alone would raise each channel, in saliences a phase: the mean so far.

    Args:
        saliences: Where the channels are.
        start: Where they started.
        pushed: How far the push alone would have lowered each of them by now.
        progress: Share of the phase that is over.
    """
    return (saliences - start + pushed) / (progress + EARLY)


def needed_push(saliences: Tensor, held: Tensor, progress: float) -> Tensor:
    """How much further each channel must be pushed to be at zero in time, if the task holds it so fast."""
    return saliences + held * (_until(progress) - progress)


@dataclass
class Firmness:
    """How much more the task resists now than it did on average; it minds the more, the less is left of a channel.

    Attributes:
        factor: By how much.
        total: The saliences pushed at the last look, summed.
        pushed: What the push alone would have taken off them all by then.
        progress: Share of the phase that was over.
    """

    factor: float = 1.0
    total: float = 0.0
    pushed: float = 0.0
    progress: float = 0.0

    def look(self, total: float, pushed: float, count: int, mean: float, progress: float) -> None:
        """Measure it, once every window.

        Args:
            total: The saliences that are pushed, summed; dead ones add nothing, whether they were cut or not.
            pushed: How far the push alone would have lowered each of them by now.
            count: How many of them are alive.
            mean: How fast the task held them on average so far.
            progress: Share of the phase that is over.
        """
        elapsed = progress - self.progress
        if elapsed < WINDOW or count == 0:
            return
        if self.progress > 0 and mean > 0:
            now = ((total - self.total) / count + pushed - self.pushed) / elapsed
            found = min(max(now / mean, 1.0), FIRMEST)
            self.factor = (self.factor + found) / 2
        self.total, self.pushed, self.progress = total, pushed, progress

    def state_dict(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def enough_push(needed: Tensor, meets: Callable[[Tensor], bool]) -> float:
    """The least push that meets the budget.

    Args:
        needed: What each channel needs to leave; infinite for those that may not.
        meets: Whether the budget is met when these channels (a mask) leave.
    """
    steps = torch.sort(needed[torch.isfinite(needed)]).values
    low, high = 0, len(steps) - 1  # the answer is one of these
    while low < high:
        middle = (low + high) // 2
        if meets(needed <= steps[middle]):
            high = middle
        else:
            low = middle + 1
    return max(float(steps[low]), 0.0) if len(steps) else 0.0


def _until(progress: float) -> float:
    return max(READY_AT, progress + NEAREST)
