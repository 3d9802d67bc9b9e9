"""The score of every channel over the epochs, and the four cases that the paper tells apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcshrink.report.chart import Chart
from pcshrink.report.compare import gated_axis, mark_cuts, shared_phases
from pcshrink.report.draw import Axis, colour, text
from pcshrink.report.parts import Data, Figure
from pcshrink.report.runs import Run
from pcshrink.train.history import History

EARLY = 1 / 3  # the share of the shrinking phase that counts as its early stage
MOST_TRACES = 24
CASES = ("no shrinking", "shrinking", "shrinking to no shrinking", "no shrinking to shrinking")


@dataclass(frozen=True)
class Traces:
    """All channels of a run.

    Attributes:
        names: Group and original number of each channel.
        epochs: The epochs with a record.
        salience: The scores (epochs, channels), for the paper's method the running saliences.
        case: For each channel which of ``CASES`` it is.
    """

    names: list[tuple[str, int]]
    epochs: NDArray[np.int64]
    salience: NDArray[np.float32]
    case: NDArray[np.int64]


def traces(history: History, dead_at: float) -> Traces | None:
    """Every channel's score over the epochs with gates, and its case; None before the shrinking phase has begun.

    A channel shrinks early if it is among the lowest K of its group in most epochs of the first third of the shrinking
    phase. It shrinks in the end if its score is at or below ``dead_at`` at the end of that phase. To be among the
    lowest K then would say nothing: there are K such whatever their scores are, and without a budget only dead ones go.
    """
    pushing = np.flatnonzero([phase == "shrink" for phase in history.epochs.phase])
    groups = {name: trace for name, trace in history.groups.items() if not np.isnan(trace.salience).all()}
    if not len(pushing) or not groups:
        return None
    salience = np.concatenate([trace.salience for trace in groups.values()], axis=1).astype(np.float32)
    selected = np.concatenate([trace.selected for trace in groups.values()], axis=1)
    early = selected[pushing[: math.ceil(EARLY * len(pushing))]].mean(axis=0) > 0.5
    late = salience[pushing[-1]] <= dead_at
    case = np.select([~early & ~late, early & late, early & ~late], [0, 1, 2], 3)
    seen = ~np.isnan(salience).all(axis=1)
    names = [(name, n) for name, trace in groups.items() for n in range(trace.salience.shape[1])]
    return Traces(names, history.epochs.epoch[seen], salience[seen], case)


def salience_figure(runs: Sequence[Run]) -> Figure | None:
    """One chart for each case and run whose method has such scores; None where there is none, or none recorded."""
    charts, known = [], {}
    for run in runs:
        traced = traces(run.history, run.dead_at) if run.history is not None and run.score_name else None
        if traced is None:
            continue
        known[run.name] = traced
        for place, name in enumerate(CASES):
            members = np.flatnonzero(traced.case == place)
            start = f"{run.name}: " if len(runs) > 1 else ""
            heading = f"{start}{name}, {len(members)} of {len(traced.names)} channels"
            charts.append((heading, _chart(run, runs, traced, members, place, heading)))
    if not charts:
        return None
    return Figure(
        key="salience", title="Scores over time, by case", charts=charts,
        caption="Scores of single channels, by which they are ranked (thin, at most "
        f"{MOST_TRACES} of each case) and of all channels of the case (line: median; area: from the tenth to the "
        "ninetieth of a hundred). A channel that was cut is 0 from then on. Early: the first third of the shrinking "
        "phase; shrinking there: among the lowest K of its group in most epochs. Late: its end; shrinking there: at or "
        "below the threshold, so dead.",
        data=Data(columns=("run", "group", "channel", "case", "epoch", "score"), rows=lambda: _rows(known)),
    )  # fmt: skip


def _rows(known: Mapping[str, Traces]) -> Iterator[Sequence[object]]:
    for name, traced in known.items():
        for i, (group, channel) in enumerate(traced.names):
            for epoch, value in zip(traced.epochs.tolist(), traced.salience[:, i].tolist(), strict=True):
                yield name, group, channel, CASES[traced.case[i]], epoch + 1, f"{value:.4g}"


def _chart(run: Run, runs: Sequence[Run], traced: Traces, members: NDArray[np.intp], place: int, heading: str) -> str:
    values, epochs = traced.salience[:, members], (traced.epochs + 1).tolist()
    said = f"{heading}."
    if len(members):
        said += f" The median goes from {np.median(values[0]):.2f} to {np.median(values[-1]):.2f}."
    chart = Chart(said, gated_axis(runs), Axis(run.score_name, 0, 1.05), phases=shared_phases(runs), height=170)
    mark_cuts(chart, [run])
    if not len(members):
        chart.front.append(
            text(chart.left + 12, (chart.top + chart.bottom) / 2 - 8, "no channel took this way", "soft")
        )
    else:
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], axis=1)
        chart.band(epochs, low.tolist(), high.tolist(), colour(place))
        for i in members[np.unique(np.linspace(0, len(members) - 1, MOST_TRACES).astype(int))]:
            group, channel = traced.names[i]
            chart.line(epochs, traced.salience[:, i].tolist(), f"faint {colour(place)}", f"{group}, channel {channel}")
        chart.line(epochs, middle.tolist(), colour(place))
    return chart.svg()
