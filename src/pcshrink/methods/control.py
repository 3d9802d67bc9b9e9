"""How a budget steers the push: what is left follows a falling cost, then the widths are fixed.

The phase has three parts. While *learning*, the rate is raised where the network lags behind the falling cost and
lowered where it is ahead of it: the rate is the price that a channel has to be worth to the task, so what is worth the
least dies first, and whoever proves worth more is let go of again. Then the network *lands*: the widths that meet the
budget are read off the saliences. What of the channels beyond them is still alive late in the phase is *closed*: a
factor that falls to zero multiplies it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LAND_AT = 0.75  # share of the phase after which the widths are fixed
CLOSE_FROM, CLOSED_AT = 0.85, 0.95  # share of the phase in which what is left is closed
POWER = 1.0  # the cost falls with this power of time
AHEAD = 0.1  # where widths are dictated: share of the phase that a channel is given to reach zero
# A tenth of the way behind for 15 % of the phase doubles the rate. At the paper's rate a channel takes about 7 % of the
# phase to reach zero; a quicker hand would overshoot, since it would not wait for what it has set in motion.
GAIN = math.log(2) / (0.1 * 0.15)
LARGEST_ERROR = 0.3
MOST, LEAST = 30.0, 0.1  # the rate never leaves this range around the one it is given


@dataclass
class Control:
    """Steers the rate of one shrinking phase.

    Attributes:
        boost: What the scheduled rate is multiplied by.
        landed: The widths are fixed.
    """

    boost: float = 1.0
    landed: bool = False

    def steer(self, progress: float, removed: float, elapsed: float) -> None:
        """Correct the rate.

        Args:
            progress: Share of the phase that is over.
            removed: Share of what must leave that is gone.
            elapsed: Share of the phase since the last correction.
        """
        error = min(max(self.wanted(progress) - removed, -LARGEST_ERROR), LARGEST_ERROR)
        self.boost = min(max(self.boost * math.exp(GAIN * error * elapsed), LEAST), MOST)

    @staticmethod
    def wanted(progress: float) -> float:
        """Share of what must leave that should be gone by now."""
        return float(min(progress / LAND_AT, 1.0) ** POWER)

    def lands(self, progress: float) -> bool:
        """Whether it is time to fix the widths."""
        return not self.landed and progress >= LAND_AT

    @staticmethod
    def opening(progress: float) -> float:
        """What a channel that must go is multiplied by."""
        return min(max((CLOSED_AT - progress) / (CLOSED_AT - CLOSE_FROM), 0.0), 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"boost": self.boost, "landed": self.landed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.boost, self.landed = float(state["boost"]), bool(state["landed"])


def on_the_way(share: float, now: Mapping[str, int], final: Mapping[str, int], channels: float) -> dict[str, int]:
    """Widths when a share of the channels that must leave is gone, every group equally far.

    Args:
        share: From 0 to 1.
        now: The widths of the groups; what is long gone may have left already.
        final: Their widths in the end.
        channels: How many channels all groups had in the beginning.
    """
    limit = sum(final.values())
    left = channels - share * (channels - limit)
    room = max(sum(now[name] for name in final) - limit, 1)
    part = min(max((left - limit) / room, 0.0), 1.0)
    return {name: round(width + part * max(now[name] - width, 0)) for name, width in final.items()}
