"""How a budget steers the push: the rate is corrected while widths are found (``methods/landing.py`` has the times).

Where widths are dictated it is corrected by how far the network is behind or ahead of a falling cost, where they are
learned by a forecast (``pcs/forecast.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcshrink.methods.landing import LAND_AT, wanted

AHEAD = 0.1  # where widths are dictated: share of the phase that a channel is given to reach zero
# A tenth of the way behind for 15 % of the phase doubles the rate. At the rate that this starts from a channel takes a
# tenth of the phase to reach zero; a quicker hand would overshoot, since it would not wait for what it set in motion.
GAIN = math.log(2) / (0.1 * 0.15)
LARGEST_ERROR = 0.3
FOLLOW = 0.03  # share of the phase in which the rate goes most of the way to what is forecast
MOST, LEAST = 30.0, 0.1  # the rate never leaves this range around the one it is given


@dataclass
class Control:
    """Steers the rate of one shrinking phase.

    Attributes:
        boost: What the scheduled rate is multiplied by.
        landed: The widths are fixed.
        pushed: How far the push alone would have lowered a salience by now.
    """

    boost: float = 1.0
    landed: bool = False
    pushed: float = 0.0

    def steer(self, progress: float, removed: float, elapsed: float) -> None:
        """Correct the rate.

        Args:
            progress: Share of the phase that is over.
            removed: Share of what must leave that is gone.
            elapsed: Share of the phase since the last correction.
        """
        error = min(max(wanted(progress) - removed, -LARGEST_ERROR), LARGEST_ERROR)
        self.boost = min(max(self.boost * math.exp(GAIN * error * elapsed), LEAST), MOST)

    def follow(self, boost: float, elapsed: float, least: float) -> None:
        """Move towards what is forecast to be right, no faster than the saliences settle that it is read off.

        Args:
            boost: What is forecast to be right.
            elapsed: Share of the phase since the last correction.
            least: Never less than this; a rate that falls again leaves channels half-way.
        """
        aim = math.log(min(max(boost, least, LEAST), MOST))
        part = 1 - math.exp(-elapsed / FOLLOW)
        self.boost = math.exp(math.log(self.boost) + part * (aim - math.log(self.boost)))

    def lands(self, progress: float) -> bool:
        """Whether it is time to fix the widths."""
        return not self.landed and progress >= LAND_AT

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"boost": self.boost, "landed": self.landed, "pushed": self.pushed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.boost, self.landed = float(state["boost"]), bool(state["landed"])
        self.pushed = float(state["pushed"])


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
