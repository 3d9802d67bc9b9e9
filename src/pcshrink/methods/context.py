"""What a method is told: a training step, and a limit that it is to meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """What is known at one training step; everything may be missing in a loop of the user's own.

    Attributes:
        images: The batch.
        labels: Its labels.
        scores: What the network made of it.
        loss: The task loss.
    """

    images: Tensor | None = None
    labels: Tensor | None = None
    scores: Tensor | None = None
    loss: Tensor | None = None


class Target(Protocol):
    """A limit on what the compact network may cost, as a method sees it."""

    @property
    def dense(self) -> float:
        """What the network costs before anything leaves."""
        ...

    @property
    def limit(self) -> float:
        """What it may cost in the end."""
        ...

    def cost(self, keep: Mapping[str, float]) -> float:
        """What the network costs when the groups keep so many channels; groups not named stay whole."""
        ...

    def widths(
        self, scores: Mapping[str, Tensor] | None = None, least: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Widths that meet the limit: the same share of every group, or by the scores and none below the least."""
        ...

    def widest(self, family: Callable[[float], Mapping[str, float]]) -> dict[str, int]:
        """The widest of a family of widths that meets the limit; ``family`` takes a share from 0 to 1 and grows."""
        ...

    def floors(self, ratio: float) -> dict[str, int]:
        """The fewest channels each group may keep: a share of it, less where the limit cannot be met otherwise."""
        ...


class ActivityTarget(Protocol):
    """A limit on what the network may cost for the mean input, as a method sees it whose mask depends on the input."""

    @property
    def dense(self) -> float:
        """What the network costs without gates."""
        ...

    @property
    def limit(self) -> float:
        """What it may cost in the end."""
        ...

    def cost(self) -> float:
        """What it costs as its gates are now: measured, mean over some training images."""
        ...
