"""How long the finished networks take, as shares of the dense one's time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from pcshrink.artifact import load, read
from pcshrink.artifact.builders import build
from pcshrink.common.files import write_text
from pcshrink.errors import CheckpointError, ShrinkError
from pcshrink.measure.latency import compare
from pcshrink.measure.timing import clock_for
from pcshrink.sweep.runner import Say
from pcshrink.sweep.runs import Outcome

FILE = "latency.json"
SECONDS = 0.5  # for each of the two networks


def time_all(outcomes: Sequence[Outcome], say: Say | None = None) -> list[Outcome]:
    """The outcomes with the share of the dense network's time that each finished network takes.

    Measured after all runs, not in each of them: there the others would be at work at the same time. What was
    measured before is not measured again. A network that cannot be timed has no share, and ``say`` is told why.
    """
    timed = []
    for outcome in outcomes:
        share = None
        if outcome.folder is not None and outcome.result is not None:
            try:
                share = _known(outcome.folder) or _measure(outcome.folder)
            except (ShrinkError, RuntimeError) as error:
                if say is not None:
                    say(f"{outcome.folder.name} could not be timed: {' '.join(str(error).split())}")
        timed.append(dataclasses.replace(outcome, latency_share=share))
    return timed


def _known(folder: Path) -> float | None:
    try:
        return float(json.loads((folder / FILE).read_text(encoding="utf-8"))["share"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _measure(folder: Path) -> float:
    """One thread by its own clock, dense and compact in turns."""
    home = folder / "model"
    saved = read(home)
    if saved.builder is None or saved.input_shape is None:
        message = f"{home} does not say how its full-size network is made"
        raise CheckpointError(message)
    # The network is the one that the recipe names, so its code has run already.
    models = {
        "dense": build(saved.builder, saved.builder_args).eval(),
        "compact": load(home, trust_builder=True).eval(),
    }
    example = torch.randn(1, *saved.input_shape, generator=torch.Generator().manual_seed(0))
    ratio = compare(models, example, "eager", threads=1, seconds=SECONDS, clock=clock_for(1)).ratio("compact", "dense")
    record = {"share": ratio.value, "low": ratio.low, "high": ratio.high, "runtime": "eager", "batch": 1, "threads": 1}
    write_text(folder / FILE, json.dumps(record, indent=1))
    return ratio.value
