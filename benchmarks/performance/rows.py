"""A figure beside its goal."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pcshrink.common.tables import text_table
from pcshrink.measure.timing import Ratio

KEPT = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: About how long each contestant is measured.
        rounds: The fewest rounds, even where they take longer than ``seconds``; 8 are enough for a 99 % interval.
        match: Of training steps, deployed and cut networks, measure only those whose row contains this.
    """

    seconds: float
    rounds: int
    match: str = ""


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        part: The part of the benchmark that measures it.
        work: What is compared with what.
        goal: The value that is wanted; None for a figure that is only reported.
        figure: What was measured.
        unit: Of goal and figure; a ratio has none.
        low: Lower end of the 99 % interval, if there is one.
        high: Upper end.
        at_least: The goal is a lower bound.
    """

    part: str
    work: str
    goal: float | None
    figure: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    at_least: bool = False

    @classmethod
    def of(cls, part: str, work: str, goal: float | None, ratio: Ratio) -> Row:
        """A row for a ratio with its interval."""
        return cls(part, work, goal, ratio.value, low=ratio.low, high=ratio.high)

    @property
    def met(self) -> bool | None:
        """Whether the figure, rounded as it is shown, meets its goal."""
        if self.goal is None:
            return None
        shown = round(self.figure, 2)
        return shown >= self.goal if self.at_least else shown <= self.goal

    def cells(self) -> list[str]:
        """Work, goal, figure, verdict."""
        sign = "at least" if self.at_least else "at most"
        goal = "" if self.goal is None else f"{sign} {self.goal:g}{self.unit}"
        interval = "" if self.low is None or self.high is None else f" [{self.low:.2f}, {self.high:.2f}]"
        verdict = {None: "", True: "met", False: "missed"}[self.met]
        return [self.work, goal, f"{self.figure:.2f}{self.unit}{interval}", verdict]


HEAD = ["work", "goal", "figure", ""]


def show(rows: list[Row]) -> str:
    """A table for the terminal."""
    return text_table([row.cells() for row in rows], head=HEAD)


def kept() -> dict[str, list[Row]]:
    """The newest figures of every part that was ever run, by part."""
    if not KEPT.is_file():
        return {}
    return {part: [Row(**row) for row in rows] for part, rows in json.loads(KEPT.read_text()).items()}


def keep(part: str, rows: list[Row]) -> None:
    """Put the figures of a part in the place of its older ones; those of other work of the same part stay."""
    everything = kept()
    new = {row.work: row for row in rows}
    old = {row.work: row for row in everything.get(part, [])}
    everything[part] = list((old | new).values())
    data = {name: [asdict(row) for row in each] for name, each in everything.items()}
    KEPT.write_text(json.dumps(data, indent=1) + "\n")
