"""The smallest network that loses at most so many points: bisection over shares of the latency."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pcshrink.common.files import write_text
from pcshrink.common.tables import text_table
from pcshrink.errors import OutOfReachError
from pcshrink.pretrained.paired import Paired
from pcshrink.pretrained.run import Shrunk

LOWEST, HIGHEST = 0.2, 0.95
RUNS = 4  # halvings: the share is then known to about 0.05
CURVE = "tradeoff.json"
Verdict = Literal["within", "beyond", "too few images to tell"]


@dataclass(frozen=True)
class Point:
    """One network of a search.

    Attributes:
        share: The share of the latency it was trained for.
        shrunk: What came out.
    """

    share: float
    shrunk: Shrunk

    def verdict(self, most: float) -> Verdict:
        """Whether the loss is within the limit, beyond it, or neither for sure."""
        return judge(self.shrunk.paired, most)


def judge(paired: Paired, most: float) -> Verdict:
    """Compare the interval of a difference with the largest one allowed."""
    if paired.high <= most:
        return "within"
    return "beyond" if paired.low > most else "too few images to tell"


@dataclass(frozen=True)
class Search:
    """A finished search.

    Attributes:
        points: All networks, the largest first.
        most: The largest loss allowed, in points.
    """

    points: tuple[Point, ...]
    most: float

    @property
    def best(self) -> Point | None:
        """The smallest network whose measured loss is within the limit; None if there is none."""
        good = [point for point in self.points if point.shrunk.paired.difference <= self.most]
        return min(good, key=lambda point: point.shrunk.latency[0], default=None)

    def table(self) -> str:
        """The trade-off curve as text."""
        rows = [
            (f"{point.share:.2f}", f"{point.shrunk.latency[0]:.3f}", f"{point.shrunk.paired.difference:+.2f}",
             f"{point.shrunk.paired.low:+.2f} to {point.shrunk.paired.high:+.2f}", point.verdict(self.most))
            for point in self.points
        ]  # fmt: skip
        return text_table(rows, ">>>><", head=("asked", "latency", "points", "95 % interval", "verdict"))

    def conclusion(self) -> str:
        """What was found, in one line."""
        best = self.best
        if best is None:
            return (
                f"no network that was tried loses at most {self.most:g} points; give more images or more hours, or "
                "allow a larger drop"
            )
        paired, share = best.shrunk.paired, best.shrunk.latency[0]
        sentence = f"smallest network within {self.most:g} points: {share:.3f} of the latency, in {best.shrunk.folder}"
        if best.verdict(self.most) == "within":
            return sentence
        return (
            f"{sentence}; but {paired.images} held-out images are too few to tell: the loss may be as large as "
            f"{paired.high:.2f} points"
        )


def search(most: float, folder: Path, run: Callable[[float, Path], Shrunk], runs: int = RUNS) -> Search:
    """Halve the range of shares so many times; every network is kept, and one that is there is not trained again.

    Args:
        most: The largest loss allowed, in points.
        folder: Where the networks go, one folder each.
        run: Trains for a share of the latency, in a folder.
        runs: How many networks to train.
    """
    low, high = LOWEST, HIGHEST
    points: list[Point] = []
    for _ in range(runs):
        share = round((low + high) / 2, 3)
        try:
            point = Point(share, run(share, folder / f"latency-{share:.3f}"))
        except OutOfReachError:
            low = share  # no network is that fast, so there is nothing to keep
            continue
        points.append(point)
        write_curve(folder / CURVE, points, most)
        if point.shrunk.paired.difference <= most:
            high = share
        else:
            low = share
    return Search(tuple(sorted(points, key=lambda point: -point.share)), most)


def write_curve(path: Path, points: list[Point], most: float) -> None:
    """Keep what is known so far."""
    rows = [{"share": p.share, "verdict": p.verdict(most), **p.shrunk.to_dict()} for p in points]
    write_text(path, json.dumps({"max_drop": most, "networks": rows}, indent=1))
