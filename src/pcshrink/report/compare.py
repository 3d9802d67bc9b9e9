"""Several runs side by side: do they fit, what are they called, and which axes do they share?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from pcshrink.errors import ConfigError
from pcshrink.report.chart import Chart
from pcshrink.report.draw import Axis, colour, number
from pcshrink.report.network import with_network
from pcshrink.report.runs import Run, open_run

MOST_RUNS = 8  # as many as there are colours


def open_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Read several runs that can share axes.

    Raises:
        CheckpointError: One of them is no run, or has no epoch yet.
        ConfigError: They do not fit: other data, twice the same, or too many.
    """
    places = [Path(folder).resolve() for folder in folders]
    twice = [place for place, count in Counter(places).items() if count > 1]
    if not places or len(places) > MOST_RUNS:
        message = f"a report shows 1 to {MOST_RUNS} runs, got {len(places)}"
        raise ConfigError(message)
    if twice:
        message = f"{twice[0]} is named twice; name each run once"
        raise ConfigError(message)
    runs = [open_run(folder, name) for folder, name in zip(folders, short_names(places), strict=True)]
    _check_fit(runs)
    return [with_network(run) for run in runs]


def short_names(places: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as it takes to tell them apart."""
    for parts in range(1, 5):
        names = ["/".join(place.parts[-parts:]) for place in places]
        if len(set(names)) == len(names):
            return names
    return [str(place) for place in places]


def _check_fit(runs: Sequence[Run]) -> None:
    """Errors on different data cannot share an axis."""
    first = runs[0]
    for run in runs[1:]:
        if run.data != first.data:
            message = (
                f"{first.folder} and {run.folder} do not fit: one was measured on {first.data}, the other on "
                f"{run.data}; report them one by one"
            )
            raise ConfigError(message)
        counts = [len(r.compact.get("error_by_class") or ()) for r in (first, run)]
        if all(counts) and counts[0] != counts[1]:
            message = (
                f"{first.folder} and {run.folder} do not fit: their data have {counts[0]} and {counts[1]} classes; "
                "report them one by one"
            )
            raise ConfigError(message)


def names(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Legend of the runs; one alone needs none."""
    return [(run.name, colour(place)) for place, run in enumerate(runs)] if len(runs) > 1 else []


def epoch_axis(runs: Sequence[Run]) -> Axis:
    """All epochs of the longest run."""
    longest = max(max(run.rows[-1].epoch + 1, sum(end - start for _, start, end in run.phases())) for run in runs)
    return Axis("epoch", 0, longest, whole=True)


def shared_phases(runs: Sequence[Run], steps: float = 1.0) -> list[tuple[str, float, float]]:
    """The phases, where all runs have the same; ``steps`` is the length of an epoch."""
    first = runs[0].phases()
    same = all(run.phases() == first for run in runs)
    return [(name, start * steps, end * steps) for name, start, end in first] if same else []


def mark_cuts(chart: Chart, runs: Sequence[Run], steps: float = 1.0) -> None:
    """Say in a chart when everything selected was cut."""
    for cut in sorted({run.cut_epoch for run in runs if run.cut_epoch is not None}):
        if chart.x.low < cut * steps < chart.x.high:
            chart.mark(cut * steps, "cut")


def gated_axis(runs: Sequence[Run]) -> Axis:
    """The epochs in which any run had gates, so that what happens there is seen well."""
    seen = [
        run.history.epochs.epoch[i] + 1
        for run in runs
        if run.history is not None
        for trace in run.history.groups.values()
        for i in np.flatnonzero(~np.isnan(trace.salience).all(axis=1))
    ]
    return Axis("epoch", float(min(seen)), float(max(*seen, min(seen) + 1)), whole=True) if seen else epoch_axis(runs)


def interval(error: float, images: int) -> tuple[float, float]:
    """Wilson's 95 % interval of an error in per cent."""
    share, z = error / 100, 1.959964
    middle = (share + z * z / (2 * images)) / (1 + z * z / images)
    reach = z * math.sqrt(share * (1 - share) / images + z * z / (4 * images * images)) / (1 + z * z / images)
    return 100 * max(middle - reach, 0.0), 100 * min(middle + reach, 1.0)


def listing(items: Iterable[str]) -> str:
    """Words with commas, and an "and" before the last."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def percent(share: float) -> str:
    """A share as per cent."""
    return f"{100 * share:.1f} %"


def amount(value: float | None) -> str:
    """A count: 31,665 or 1.22 M; a dash where there is none."""
    if value is None:
        return "–"
    return number(value) if abs(value) >= 1e6 else f"{value:,.0f}"
