"""Loss, error, learning rate and size over the training, by phase, with the cut marked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pcshrink.report.chart import Chart
from pcshrink.report.compare import epoch_axis, mark_cuts, names, shared_phases
from pcshrink.report.draw import Axis, colour, number, span
from pcshrink.report.parts import Data, Figure
from pcshrink.report.runs import Run
from pcshrink.train.epoch_row import EpochRow

BINS = 200
Doubles = NDArray[np.float64]


def binned(
    x: NDArray[np.generic], y: NDArray[np.generic], bins: int = BINS
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Mean place, mean, lowest and highest value of neighbouring points, so that many become few."""
    if len(x) <= bins:
        whole = y.astype(np.float64)
        return x.astype(np.float64), whole, whole, whole
    parts = [part for part in np.array_split(np.arange(len(x)), bins) if len(part)]
    places, values = x.astype(np.float64), y.astype(np.float64)
    columns = [[float(f(v[part])) for part in parts] for f, v in
               ((np.mean, places), (np.mean, values), (np.min, values), (np.max, values))]  # fmt: skip
    return np.array(columns[0]), np.array(columns[1]), np.array(columns[2]), np.array(columns[3])


def over_epochs(
    runs: Sequence[Run], figure: Callable[[EpochRow], float | None], label: str, *, log: bool = False
) -> str | None:
    """A figure of each epoch for all runs in one chart; None if no run has it."""
    lines = [[(row.epoch + 1, value) for row in run.rows if (value := figure(row)) is not None] for run in runs]
    values = [value for line in lines for _, value in line]
    if not values:
        return None
    positive = [value for value in values if value > 0]
    log = log and bool(positive) and max(positive) > 5 * min(positive)
    y = span(label, values, zero=not log, log=log)
    said = "; ".join(
        f"{run.name} from {number(line[0][1])} to {number(line[-1][1])}"
        for run, line in zip(runs, lines, strict=True)
        if line
    )
    chart = Chart(f"{label} over the epochs: {said}.", epoch_axis(runs), y, names(runs), shared_phases(runs))
    mark_cuts(chart, runs)
    for place, line in enumerate(lines):
        chart.line([x for x, _ in line], [y for _, y in line], colour(place))
    return chart.svg()


def training(runs: Sequence[Run]) -> Figure:
    """Loss, error, learning rate and multiply-adds left, epoch by epoch."""
    charts: list[tuple[str, Callable[[], str | None]]] = [
        ("Error", lambda: over_epochs(runs, lambda row: row.error, "error, %", log=True)),
        ("Loss, mean of each epoch", lambda: over_epochs(runs, lambda row: row.loss, "loss", log=True)),
        ("Learning rate", lambda: over_epochs(runs, lambda row: row.lr, "learning rate")),
        ("Multiply-adds left", lambda: over_epochs(runs, _percent_left, "% of the dense network")),
    ]
    drawn = [(heading, draw()) for heading, draw in charts]
    told = dict.fromkeys(figure.key for run in runs for row in run.rows for figure in row.figures)
    keys = ("epoch", "phase", "step", "loss", "error", "lr", *told, "madds", "dead", "seconds")
    rows = [[run.name, *(row.to_dict().get(key, "") for key in keys)] for run in runs for row in run.rows]
    return Figure(
        key="training", title="Epoch by epoch", charts=[(heading, svg) for heading, svg in drawn if svg is not None],
        caption="Shaded and plain: the phases. Dotted: everything selected was cut. Error and loss are logarithmic "
        "where they span much.",
        data=Data(columns=("run", *keys), rows=lambda: rows),
    )  # fmt: skip


def _percent_left(row: EpochRow) -> float | None:
    return None if row.madds_share is None else 100 * row.madds_share


def step_loss(runs: Sequence[Run]) -> Figure | None:
    """The task loss of every iteration, one run against another; None where no step was recorded."""
    recorded = [
        (place, run) for place, run in enumerate(runs) if run.history is not None and len(run.history.steps.step)
    ]
    if not recorded:
        return None
    curves = {place: binned(run.history.steps.step, run.history.steps.task) for place, run in recorded if run.history}
    lowest = [float(v) for _, mean, low, high in curves.values() for v in (*low, *high)]
    last = max(int(run.history.steps.step[-1]) for _, run in recorded if run.history)
    said = "; ".join(f"{run.name} ends at {curves[place][1][-1]:.3g}" for place, run in recorded)
    length = _epoch_length([run for _, run in recorded])
    chart = Chart(
        f"Task loss of every iteration, {last + 1} in all: {said}.", Axis("iteration", 0, last + 1),
        span("task loss", lowest, log=True), names(runs), shared_phases(runs, length) if length else (),
    )  # fmt: skip
    if length:
        mark_cuts(chart, runs, length)
    for place, (x, mean, low, high) in curves.items():
        chart.band(x.tolist(), low.tolist(), high.tolist(), colour(place))
        chart.line(x.tolist(), mean.tolist(), colour(place))
    return Figure(
        key="step-loss", title="Loss for each iteration", charts=[("", chart.svg())],
        caption="The task loss, without the penalty: mean (line) and range (area) of neighbouring iterations.",
        data=Data(columns=("run", "step", "loss", "task", "penalty", "pushed"), rows=lambda: _step_rows(runs)),
    )  # fmt: skip


def _step_rows(runs: Sequence[Run]) -> Iterator[Sequence[object]]:
    for run in runs:
        if run.history is not None:
            steps = run.history.steps
            columns = (steps.step, steps.loss, steps.task, steps.penalty, steps.pushed)
            yield from zip(itertools.repeat(run.name), *(c.tolist() for c in columns), strict=False)


def _epoch_length(runs: Sequence[Run]) -> float:
    """Steps of an epoch, where all runs have the same; else 0."""
    lengths = {(run.rows[0].step or 0) / (run.rows[0].epoch + 1) for run in runs}
    return float(lengths.pop()) if len(lengths) == 1 else 0.0
