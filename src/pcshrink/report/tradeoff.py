"""Error against multiply-adds, with the published points of the same network."""

from __future__ import annotations

from collections.abc import Sequence

from pcshrink.report.chart import Chart, Labels
from pcshrink.report.compare import interval, names
from pcshrink.report.draw import Axis, colour, number, span
from pcshrink.report.parts import Data, Figure, Table
from pcshrink.report.references import Reference, references_for
from pcshrink.report.runs import Run

Point = tuple[str, str, float, float]  # run, "dense", "compact" or "mean input", madds, error


def references(runs: Sequence[Run]) -> list[Reference]:
    """The published rows for the networks of these runs."""
    known: dict[Reference, None] = {}
    for run in runs:
        classes = len(run.compact.get("error_by_class") or ()) or None
        known |= dict.fromkeys(references_for(run.model, run.data, classes))
    return list(known)


def points(runs: Sequence[Run], key: str) -> list[Point]:
    """Where the runs lie: dense and compact, by a kind of cost."""
    drawn: list[Point] = []
    for run in runs:
        plain = run.method == "dense"
        after = "compact" if run.cuts else "mean input"
        shown = {"dense": run.dense | run.compact} if plain else {"dense": run.dense, after: run.compact}
        for kind, costs in shown.items():
            if costs.get(key) and costs.get("error") is not None:
                drawn.append((run.name, kind, float(costs[key]), float(costs["error"])))
    return drawn


def tradeoff(runs: Sequence[Run]) -> Figure | None:
    """Error against multiply-adds; None while no run is finished."""
    known = references(runs)
    key = "paper_madds" if known else "madds"
    ours = points(runs, key)
    if not ours:
        return None
    unit, letter = (1e9, "G") if max(p[2] for p in ours) >= 1e9 else (1e6, "M")
    costs = [p[2] / unit for p in ours] + [r.madds / unit for r in known]
    room = 0.12 * (max(costs) - min(costs) or max(costs))  # for names
    x = Axis(f"multiply-adds, {letter}", max(min(costs) - room, 0.0), max(costs) + room)
    ranges = [interval(p[3], run.images) for p in ours for run in runs if run.name == p[0] and run.images]
    y = span("error, %", [p[3] for p in ours] + [r.error for r in known] + [v for pair in ranges for v in pair])
    chart = Chart(_alt(ours, known), x, Axis(y.label, max(y.low, 0), y.high), names(runs), height=270)
    _draw(chart, runs, ours, known, unit)
    rows = [[*p, ""] for p in ours] + [["published", r.method, r.madds, r.error, r.note] for r in known]
    counted = "as the paper counts them" if known else "of convolutions and linear layers"
    beside = " Grey: the paper's own points for this network, with its own, longer training." if known else ""
    beside += " The table notes where a method's own paper says otherwise." if any(row.note for row in known) else ""
    return Figure(
        key="tradeoff", title="Error against multiply-adds", charts=[("", chart.svg())], side=_table(ours, known),
        caption=f"Ring: dense. Dot: compact. Whiskers: 95 % interval. Multiply-adds {counted}.{beside}",
        data=Data(columns=("run", "network", "madds", "error", "note"), rows=lambda: rows),
    )  # fmt: skip


def _draw(chart: Chart, runs: Sequence[Run], ours: Sequence[Point], known: Sequence[Reference], unit: float) -> None:
    labels, images = Labels(chart), {run.name: run.images for run in runs}
    kinds = {run.name: colour(place) for place, run in enumerate(runs)}
    for name, kind, madds, error in ours:
        count = images[name]
        low, high = interval(error, count) if count else (error, error)
        chart.whisker(madds / unit, low, high, kinds[name])
        words = f"{name}, {kind}: {error:.2f} %, {number(madds)}"
        chart.dot(madds / unit, error, kinds[name], words, hollow=kind == "dense", size=6)
        labels.block(madds / unit, low, high)
    for row in known:
        chart.dot(row.madds / unit, row.error, "ref", f"{row.method}: {row.error} %, {number(row.madds)}", size=4)
        labels.block(row.madds / unit, row.error, row.error)
    for _, kind, madds, error in ours if len(runs) == 1 else ():
        labels.add(madds / unit, error, kind, "strong")
    for row in known:
        labels.add(row.madds / unit, row.error, row.method, "soft")


def _table(ours: Sequence[Point], known: Sequence[Reference]) -> Table:
    rows = [*ours, *(("published", _noted(row), row.madds, row.error) for row in known)]
    shown = [
        [name, kind, number(madds), f"{error:.2f} %"] for name, kind, madds, error in sorted(rows, key=lambda r: r[2])
    ]
    return Table(columns=("from", "network", "multiply-adds>", "error>"), rows=shown)


def _noted(row: Reference) -> str:
    """The method, and below it in small type what is wrong with its figures."""
    return f"{row.method}\n{row.note}" if row.note else row.method


def _alt(ours: Sequence[Point], known: Sequence[Reference]) -> str:
    said = [f"{name}, {kind}: error {error:.2f} % at {number(madds)}" for name, kind, madds, error in ours]
    said += [f"published {row.method}: {row.error} % at {number(row.madds)}" for row in known]
    return "Error against multiply-adds. " + "; ".join(said) + "."
