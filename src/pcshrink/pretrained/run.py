"""Run a request: train, compare with the dense network, time, write everything down."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcshrink.artifact import load
from pcshrink.budget.config import LATENCY_TOLERANCE, TOLERANCE
from pcshrink.common.files import write_text
from pcshrink.common.tables import text_table
from pcshrink.data import ImageData
from pcshrink.errors import ConfigError
from pcshrink.measure.latency import compare
from pcshrink.measure.timing import clock_for
from pcshrink.models import usual_preprocessing
from pcshrink.pretrained.paired import Paired, compare_errors
from pcshrink.pretrained.prepare import Prepared
from pcshrink.pretrained.request import RECIPE, Goal
from pcshrink.runtime.registry import DEFAULT_RUNTIME
from pcshrink.train.answers import kept_answers
from pcshrink.train.outcome import NOT_SHOWN
from pcshrink.train.recipe.read import dump_recipe, load_recipe
from pcshrink.train.run import open_section, train

RESULT = "shrunk.json"
# These follow from how quick the machine was when the run was planned.
PLANNED = {"epochs", "description", "output"}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Shrunk:
    """A finished network beside the dense one.

    Attributes:
        folder: Its run.
        paired: Their errors on the held-out images.
        latency: Share of the dense network's time, with both ends of its 99 % interval.
        madds: Share of the multiply-adds.
        params: Share of the parameters.
        labelled: Whether the error is by labels, or the disagreement with the dense network.
    """

    folder: Path
    paired: Paired
    latency: tuple[float, float, float]
    madds: float
    params: float
    labelled: bool

    def table(self) -> str:
        """The figures for people."""
        share, low, high = self.latency
        what = "error" if self.labelled else "disagreement"
        rows = [
            (what, f"{self.paired.second_error:.2f} %", f"{self.paired.difference:+.2f} points "
             f"({self.paired.low:+.2f} to {self.paired.high:+.2f}) on {self.paired.images} images"),
            ("latency", f"{100 * share:.1f} %", f"of the dense network's in {DEFAULT_RUNTIME} "
             f"({100 * low:.1f} to {100 * high:.1f})"),
            ("madds", f"{100 * self.madds:.1f} %", "of the dense network's"),
            ("params", f"{100 * self.params:.1f} %", "of the dense network's"),
        ]  # fmt: skip
        return text_table(rows, "<><")

    def missed(self, goal: Goal) -> bool:
        """Whether the network costs more than was asked for, beyond what a measurement may be wrong by."""
        if goal.kind == "max-drop":
            return False  # a search has its own conclusion
        if goal.kind == "latency":
            return self.latency[1] > (1 + LATENCY_TOLERANCE) * goal.amount
        return (self.madds if goal.kind == "madds" else self.params) > (1 + TOLERANCE) * goal.amount

    def budget_line(self, goal: Goal) -> str:
        """The budget, and whether it was met, in words."""
        where = f" in {DEFAULT_RUNTIME}" if goal.kind == "latency" else ""
        reached = {"latency": self.latency[0], "madds": self.madds, "params": self.params}[goal.kind]
        line = f"budget: {goal.amount:.1%} of the dense network's {goal.kind}{where}, reached {reached:.1%}"
        if goal.kind == "latency":
            line += f" ({self.latency[1]:.1%} to {self.latency[2]:.1%})"
            if not self.missed(goal) and reached > (1 + LATENCY_TOLERANCE) * goal.amount:
                line += f"; {NOT_SHOWN}"
        return f"{line}; MISSED" if self.missed(goal) else line

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        share, low, high = self.latency
        return {
            "paired": self.paired.to_dict(), "latency": share, "latency_low": low, "latency_high": high,
            "madds": self.madds, "params": self.params, "labelled": self.labelled,
        }  # fmt: skip

    @classmethod
    def read(cls, folder: Path) -> Shrunk | None:
        """What a finished run wrote; None where there is none."""
        path = folder / RESULT
        if not path.is_file():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        names = {field.name for field in dataclasses.fields(Paired)}
        paired = Paired(**{name: value for name, value in data["paired"].items() if name in names})
        latency = (data["latency"], data["latency_low"], data["latency_high"])
        return cls(folder, paired, latency, data["madds"], data["params"], data["labelled"])


def run_one(prepared: Prepared, folder: Path, *, resume: bool, trust: bool, quiet: bool = False) -> Shrunk:
    """Train as prepared and compare; a finished run is not trained again.

    Raises:
        ConfigError: The folder holds a run of something else.
    """
    if resume and (folder / RECIPE).is_file():
        prepared = _as_begun(prepared, folder)
        done = Shrunk.read(folder)
        if done is not None:
            return done
    write_text(folder / RECIPE, dump_recipe(prepared.recipe))
    write_text(folder / "held-out.txt", "".join(f"{path}\n" for path in prepared.held_out))
    result = train(prepared.recipe, folder, resume=resume, quiet=quiet, trust=trust)
    dense = prepared.network.model
    # Cut out of the network that the user named: the file need not say how to make it, which some names forbid.
    small = load(result.model_dir, model=dense).eval()
    example = prepared.network.example(1)
    threads = prepared.recipe.train.threads or 1
    # On a busy machine the wall clock of one thread measures the others.
    clock = clock_for(threads)
    timed = compare({"dense": dense, "compact": small}, example, DEFAULT_RUNTIME, threads=threads, clock=clock)
    share = timed.ratio("compact", "dense")
    shrunk = Shrunk(
        folder,
        compare_errors(dense, small, held_out(prepared, folder).val),
        (share.value, share.low, share.high),
        result.compact["madds"] / result.dense["madds"],
        result.compact["params"] / result.dense["params"],
        prepared.labelled,
    )
    write_text(folder / RESULT, json.dumps(shrunk.to_dict(), indent=1))
    return shrunk


def _as_begun(prepared: Prepared, folder: Path) -> Prepared:
    """The plan that a run was begun with, since another look at the clock may give another schedule."""
    earlier = load_recipe(str(folder / RECIPE))
    old, new = (recipe.model_dump(mode="json", exclude=PLANNED) for recipe in (earlier, prepared.recipe))
    changed = [key for key in new if new[key] != old[key]]
    if changed:
        message = f"{folder} holds a run of something else (different: {', '.join(changed)}); choose another --out"
        raise ConfigError(message)
    return dataclasses.replace(prepared, recipe=earlier)


def held_out(prepared: Prepared, folder: Path) -> ImageData:
    """The data of the run, with the labels it was measured on."""
    recipe = prepared.recipe
    seen = usual_preprocessing(recipe.model.name, recipe.model.args)
    return kept_answers(open_section(recipe.data, recipe.seed, False, preprocessing=seen), folder)
