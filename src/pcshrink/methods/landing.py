"""When a phase that is steered to a budget lands: its timetable, for all methods that shrink step by step.

What must leave does so steadily. Then the network *lands*: the widths are fixed. What of the channels beyond them is
still alive late in the phase is *closed*: a factor that falls to zero multiplies it.
"""

from __future__ import annotations

LAND_AT = 0.75  # share of the phase after which the widths are fixed
CLOSE_FROM, CLOSED_AT = 0.85, 0.95  # share of the phase in which what is left is closed


def wanted(progress: float) -> float:
    """Share of what must leave that should be gone by now."""
    return min(progress / LAND_AT, 1.0)


def opening(progress: float) -> float:
    """What a channel that must go is multiplied by."""
    return min(max((CLOSED_AT - progress) / (CLOSED_AT - CLOSE_FROM), 0.0), 1.0)
