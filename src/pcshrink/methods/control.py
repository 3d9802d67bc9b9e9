"""How a budget steers the push: follow a falling cost, then fix the widths, then close what is left.

The phase has three parts. While *learning*, the k lowest channels of every group are pushed. The rate is raised where
the network is wider than a smoothly falling cost wants it, and lowered where it is narrower. Then the network *lands*:
the widths that meet the budget are read off the saliences, the channels beyond them go on being pushed, the others
are let go. What of them is still alive late in the phase is *closed*: a factor that falls to zero multiplies it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

LAND_AT = 0.75  # share of the phase after which the widths are fixed
CLOSE_FROM, CLOSED_AT = 0.8, 0.95  # share of the phase in which what is left is closed
POWER = 2.0  # the cost falls with this power of time
# A tenth of the way behind for a twentieth of the phase doubles the rate.
GAIN = math.log(2) / (0.1 * 0.05)
LARGEST_ERROR = 0.3
AHEAD = 0.05  # share of the phase to look ahead
SMOOTHING = 0.3
STEEPEST = 5.0  # what must leave cannot leave faster than in a fifth of the phase; more is noise
MOST, LEAST = 30.0, 0.03  # the rate never leaves this range around its schedule


@dataclass
class Control:
    """Steers the rate of one shrinking phase.

    Attributes:
        boost: What the scheduled rate is multiplied by.
        landed: The widths are fixed.
        removed: Share of what must leave that was gone at the last correction.
        slope: How fast it grows, by share of the phase.
    """

    boost: float = 1.0
    landed: bool = False
    removed: float = 0.0
    slope: float = 0.0

    def steer(self, progress: float, removed: float, elapsed: float) -> None:
        """Correct the rate.

        Args:
            progress: Share of the phase that is over.
            removed: Share of what must leave that is gone; channels half pushed down count half.
            elapsed: Share of the phase since the last correction.
        """
        steepness = min(max((removed - self.removed) / elapsed, -STEEPEST), STEEPEST)
        self.slope += SMOOTHING * (steepness - self.slope)
        self.removed = removed
        # Saliences keep falling for a while after the rate is lowered, so look ahead.
        error = self.wanted(progress + AHEAD) - (removed + AHEAD * self.slope)
        error = min(max(error, -LARGEST_ERROR), LARGEST_ERROR)
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
        return {"boost": self.boost, "landed": self.landed, "removed": self.removed, "slope": self.slope}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.boost, self.landed = float(state["boost"]), bool(state["landed"])
        self.removed, self.slope = float(state["removed"]), float(state["slope"])
