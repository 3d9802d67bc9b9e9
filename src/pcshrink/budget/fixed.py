"""Widths that were chosen beforehand, as a target for a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class FixedWidths:
    """The groups are to keep exactly so many channels; what they cost is counted in channels.

    Attributes:
        keep: Group name -> how many channels it keeps.
        dense: How many channels all groups had before anything left.
    """

    keep: Mapping[str, int]
    dense: float

    @property
    def limit(self) -> float:
        """Channels left in the end."""
        return float(sum(self.keep.values()))

    def cost(self, keep: Mapping[str, float]) -> float:
        """Channels of all groups; one that is narrower than it should be makes up for no other."""
        return float(sum(max(keep.get(name, width), width) for name, width in self.keep.items()))

    def widths(
        self, scores: Mapping[str, Tensor] | None = None, least: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """The chosen ones, whatever the channels are worth."""
        return dict(self.keep)

    def widest(self, family: Callable[[float], Mapping[str, float]]) -> dict[str, int]:
        """The chosen ones."""
        return dict(self.keep)

    def floors(self, ratio: float) -> dict[str, int]:
        """The chosen ones."""
        return dict(self.keep)
