"""What a user asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from pcshrink.errors import ConfigError

Kind = Literal["latency", "madds", "params", "max-drop"]
RECIPE = "shrink.yaml"  # what was run
FORMS = "latency=0.5, madds=0.5, params=0.5 or max-drop=1.0"


@dataclass(frozen=True)
class Goal:
    """How far to shrink.

    Attributes:
        kind: What is limited: a cost as a share of the dense network's, or the loss of accuracy in points.
        amount: How much.
    """

    kind: Kind
    amount: float

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Read ``latency=0.5`` and the like.

        Raises:
            ConfigError: It is something else, or the number makes no sense.
        """
        kind, _, number = text.partition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = float("nan")
        if kind not in get_args(Kind) or amount != amount:
            message = f"--budget wants {FORMS}, got {text!r}"
            raise ConfigError(message)
        if kind == "max-drop" and not 0 < amount < 100:
            message = f"--budget max-drop wants points of accuracy above 0 and below 100, got {number}"
            raise ConfigError(message)
        if kind != "max-drop" and not 0 < amount < 1:
            already = "; at 1 or more the network meets it already, so there is nothing to do" if amount >= 1 else ""
            message = f"--budget {kind} wants a share of the dense network above 0 and below 1, got {number}{already}"
            raise ConfigError(message)
        return cls(cast(Kind, kind), amount)

    def at(self, share: float) -> Goal:
        """A step of a search for the smallest network: so large a share of the dense network's latency."""
        return Goal("latency", share)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call of ``pcshrink shrink``.

    Attributes:
        model: As ``pcshrink.models.create`` takes it.
        images: The folder of images.
        out: The folder for everything that is written.
        goal: How far to shrink.
        weights: A checkpoint; without, the library's own weights are loaded.
        labels: Whether folder names are labels; None decides by whether images lie in folders.
        hours: How long the training may take; None for as long as the number of images asks for.
        seed: Of the training and of what is held out.
        threads: Of torch, and of the runtime that is timed.
        settings: Changes of the recipe, ``section.key=value``.
        trust: Run a network of the user's own.
    """

    model: str
    images: Path
    out: Path
    goal: Goal
    weights: Path | None = None
    labels: bool | None = None
    hours: float | None = None
    seed: int = 0
    threads: int = 1
    settings: tuple[str, ...] = ()
    trust: bool = False

    def __post_init__(self) -> None:
        """Check what cannot work with any network."""
        if self.hours is not None and not 0 < self.hours < math.inf:
            message = f"--hours must be a number above 0, got {self.hours:g}"
            raise ConfigError(message)
