"""Error against multiply-adds, with the published points of the same network, and against latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pcshrink.report.chart import Chart, Labels
from pcshrink.report.compare import interval, names
from pcshrink.report.draw import Axis, colour, number, span
from pcshrink.report.parts import Data, Figure, Table
from pcshrink.report.references import Reference, references_for
from pcshrink.report.runs import Run

Point = tuple[str, str, float, float]  # run, "dense", "compact" or "mean input", cost, error
ROOM = 0.12  # share of the horizontal axis that names take at its ends


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
    ours = points(runs, "paper_madds" if known else "madds")
    if not ours:
        return None
    unit, letter = (1e9, "G") if max(p[2] for p in ours) >= 1e9 else (1e6, "M")
    chart = _drawn(runs, ours, known, f"multiply-adds, {letter}", unit, number)
    rows = [[*p, ""] for p in ours] + [["published", r.method, r.madds, r.error, r.note] for r in known]
    counted = "as the paper counts them" if known else "of convolutions and linear layers"
    beside = " Grey: the paper's own points for this network, with its own, longer training." if known else ""
    beside += " The table notes where a method's own paper says otherwise." if any(row.note for row in known) else ""
    return Figure(
        key="tradeoff", title="Error against multiply-adds", charts=[("", chart.svg())],
        side=_table(ours, known, "multiply-adds", number),
        caption=f"Ring: dense. Dot: compact. Whiskers: 95 % interval. Multiply-adds {counted}.{beside}",
        data=Data(columns=("run", "network", "madds", "error", "note"), rows=lambda: rows),
    )  # fmt: skip


def latency_tradeoff(runs: Sequence[Run]) -> Figure | None:
    """Error against the share of the dense network's latency; None where none was measured."""
    timed = [run for run in runs if run.dense.get("latency_ms") and run.compact.get("latency_ms")]
    ours = [
        (name, kind, latency / float(run.dense["latency_ms"]), error)
        for run in timed
        for name, kind, latency, error in points([run], "latency_ms")
    ]
    if not any(run.method != "dense" for run in timed):
        return None
    say = partial("{:.2f}".format)
    chart = _drawn(timed, ours, (), "share of the dense network's latency", 1.0, say)
    return Figure(
        key="tradeoff-latency", title="Error against latency", charts=[("", chart.svg())],
        side=_table(ours, (), "latency", say),
        caption="Ring: dense. Dot: compact. Whiskers: 95 % interval. Latency: each network beside its own dense one.",
        data=Data(columns=("run", "network", "latency", "error"), rows=lambda: [list(point) for point in ours]),
    )  # fmt: skip


def _drawn(
    runs: Sequence[Run],
    ours: Sequence[Point],
    known: Sequence[Reference],
    label: str,
    unit: float,
    say: Callable[[float], str],
) -> Chart:
    """Points with their intervals, and the published ones; costs are divided by the unit."""
    images = {run.name: run.images for run in runs}
    ranges = {point: interval(point[3], count) for point in ours if (count := images[point[0]])}
    costs = [p[2] / unit for p in ours] + [r.madds / unit for r in known]
    room = ROOM * (max(costs) - min(costs) or max(costs))
    x = Axis(label, max(min(costs) - room, 0.0), max(costs) + room)
    ends = [end for pair in ranges.values() for end in pair]
    y = span("error, %", [p[3] for p in ours] + [r.error for r in known] + ends)
    chart = Chart(_alt(ours, known, label, say), x, Axis(y.label, max(y.low, 0), y.high), names(runs), height=270)
    labels, kinds = Labels(chart), {run.name: colour(place) for place, run in enumerate(runs)}
    for point in ours:
        name, kind, cost, error = point
        low, high = ranges.get(point, (error, error))
        chart.whisker(cost / unit, low, high, kinds[name])
        words = f"{name}, {kind}: {error:.2f} %, {say(cost)}"
        chart.dot(cost / unit, error, kinds[name], words, hollow=kind == "dense", size=6)
        labels.block(cost / unit, low, high)
    for row in known:
        chart.dot(row.madds / unit, row.error, "ref", f"{row.method}: {row.error} %, {say(row.madds)}", size=4)
        labels.block(row.madds / unit, row.error, row.error)
    for _, kind, cost, error in ours if len(runs) == 1 else ():
        labels.add(cost / unit, error, kind, "strong")
    for row in known:
        labels.add(row.madds / unit, row.error, row.method, "soft")
    return chart


def _table(ours: Sequence[Point], known: Sequence[Reference], cost: str, say: Callable[[float], str]) -> Table:
    rows = [*ours, *(("published", _noted(row), row.madds, row.error) for row in known)]
    shown = [[name, kind, say(cost), f"{error:.2f} %"] for name, kind, cost, error in sorted(rows, key=lambda r: r[2])]
    return Table(columns=("from", "network", f"{cost}>", "error>"), rows=shown)


def _noted(row: Reference) -> str:
    """The method, and below it in small type what is wrong with its figures."""
    return f"{row.method}\n{row.note}" if row.note else row.method


def _alt(ours: Sequence[Point], known: Sequence[Reference], label: str, say: Callable[[float], str]) -> str:
    said = [f"{name}, {kind}: error {error:.2f} % at {say(cost)}" for name, kind, cost, error in ours]
    said += [f"published {row.method}: {row.error} % at {say(row.madds)}" for row in known]
    return f"Error against {label.partition(',')[0]}. " + "; ".join(said) + "."
