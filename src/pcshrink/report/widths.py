"""Widths: of every group before and after, of every layer with its multiply-adds, and over the epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pcshrink.report.bars import Bar, bars
from pcshrink.report.chart import Chart
from pcshrink.report.compare import gated_axis, mark_cuts, percent, shared_phases
from pcshrink.report.draw import Axis, colour, hue, number, span
from pcshrink.report.network import LayerRow, group_shares, layer_rows
from pcshrink.report.parts import Data, Figure
from pcshrink.report.runs import Run

MOST_NAMED = 8


def group_widths(runs: Sequence[Run]) -> Figure | None:
    """Channels of every group before and after, with its share of the dense network's multiply-adds."""
    shown = [(place, run) for place, run in enumerate(runs) if run.widths]
    if not shown:
        return None
    longest = max(before for _, run in shown for before, _ in run.widths.values())
    charts, rows = [], []
    for place, run in shown:
        shares = group_shares(run)
        lines = []
        for name, (before, after) in run.widths.items():
            was, now = shares.get(name, (None, None))
            share = f" · {percent(was)}" if was is not None else ""
            lines.append(Bar(name=name, before=before, after=after, note=f"{before} → {after}{share}"))
            rows.append([run.name, name, before, after, "" if was is None else was, "" if now is None else now])
        said = "; ".join(f"{line.name} {line.note}" for line in lines)
        heads = ("group", "channels · madds" if shares else "channels")
        charts.append(
            (run.name, bars(f"Channels of each group, {run.name}: {said}.", lines, longest, colour(place), heads))
        )
    return Figure(
        key="group-widths", title="Width of every group, before and after", charts=charts,
        caption="Light: channels before. Solid: channels left. Per cent: share of the dense network's multiply-adds "
        "that the group's layers cause.",
        data=Data(
            columns=("run", "group", "before", "after", "madds_share_before", "madds_share_after"), rows=lambda: rows
        ),
    )  # fmt: skip


def width_ratio_by_layer(runs: Sequence[Run]) -> Figure | None:
    """Output channels left of every layer, as a share."""
    return _by_layer(
        runs, "width-ratio", "Width ratio by layer", "channels left, %", lambda row: 100 * row.width_ratio,
        "Output channels of every convolution and linear layer, as a share of the dense network's.", 100.0,
        [place for place, run in enumerate(runs) if run.cuts and not run.whole and run.layers_known],
    )  # fmt: skip


def madds_by_layer(runs: Sequence[Run]) -> Figure | None:
    """Multiply-adds of every layer; where gates choose for each input, of the mean one."""
    dynamic = any(run.dynamic for run in runs)
    mean = " Where gates choose for each input: the mean over the evaluation images, without the gates' own." * dynamic
    return _by_layer(
        runs, "layer-madds", "Multiply-adds by layer", "multiply-adds", lambda row: row.madds_after,
        f"Multiply-adds of every convolution and linear layer for one sample.{mean}", None,
        [place for place, run in enumerate(runs) if (run.cuts or run.dynamic) and not run.whole and run.layers_known],
    )  # fmt: skip


def _by_layer(
    runs: Sequence[Run], key: str, title: str, label: str, value: Callable[[LayerRow], float], caption: str,
    full: float | None, drawn: Sequence[int],
) -> Figure | None:  # fmt: skip
    """One line for each of the drawn runs over the layers in their order, beside the dense network's."""
    layers = {place: layer_rows(runs[place]) for place in drawn}
    shown = {place: rows for place, rows in layers.items() if rows}
    first = next(iter(shown.values()), [])
    if not first or any([r.name for r in rows] != [r.name for r in first] for rows in shown.values()):
        return None
    places = list(range(1, len(first) + 1))
    dense = [full if full is not None else float(row.madds_before) for row in first]
    y = span(label, [0.0, *dense])
    if full is None:  # whole millions read better than seven digits
        y = Axis(f"{label}, M", 0.0, y.high / 1e6)
    scale = 1.0 if full is not None else 1e-6
    legend = [("dense", "ref"), *((runs[p].name, colour(p)) for p in shown)]
    alt = f"{title}. " + "; ".join(
        f"{runs[p].name}: {', '.join(number(scale * value(r)) for r in rows)}" for p, rows in shown.items()
    )
    chart = Chart(alt, Axis("layer", 1, max(len(first), 2), whole=True), Axis(y.label, 0.0, y.high), legend)
    chart.line(places, [scale * v for v in dense], "ref")
    for p, rows in shown.items():
        chart.line(places, [scale * value(r) for r in rows], colour(p))
        for x, row in zip(places, rows, strict=True):
            chart.dot(x, scale * value(row), colour(p), f"{row.name}: {number(value(row))}", size=3)
    table = [
        [runs[p].name, x, row.name, row.madds_before, row.madds_after, row.width_ratio]
        for p, each in shown.items()
        for x, row in zip(places, each, strict=True)
    ]
    columns = ("run", "layer", "name", "madds_before", "madds_after", "width_ratio")
    return Figure(
        key=key,
        title=title,
        caption=caption,
        charts=[("", chart.svg())],
        data=Data(columns=columns, rows=lambda: table),
    )


def width_over_time(runs: Sequence[Run]) -> Figure | None:
    """Channels alive in every group over the epochs; None where no history was recorded."""
    charts, rows = [], []
    for run in runs:
        groups = run.history.groups if run.history is not None and run.cuts else {}
        if run.history is None or not groups or all((t.alive < 0).all() for t in groups.values()):
            continue
        epochs = run.history.epochs.epoch + 1
        few = len(groups) <= MOST_NAMED
        legend = [(name, hue(p, len(groups))) for p, name in enumerate(groups)] if few else _ends(list(groups))
        ends = {name: int(trace.alive[-1]) / trace.salience.shape[1] for name, trace in groups.items()}
        said = ", ".join(f"{name} {percent(share)}" for name, share in ends.items())
        chart = Chart(
            f"Channels alive in each group over the epochs, {run.name}; at the end {said}.", gated_axis(runs),
            Axis("channels alive, %", 0, 104), legend, shared_phases(runs),
        )  # fmt: skip
        mark_cuts(chart, [run])
        for place, (name, trace) in enumerate(groups.items()):
            size = trace.salience.shape[1]
            shares = [100 * n / size if n >= 0 else float("nan") for n in trace.alive.tolist()]
            chart.line(epochs.tolist(), shares, hue(place, len(groups)), name)
            rows += [
                [run.name, int(e), name, int(w), int(a), size]
                for e, w, a in zip(epochs, trace.width, trace.alive, strict=True)
                if a >= 0
            ]
        charts.append((run.name, chart.svg()))
    if not charts:
        return None
    return Figure(
        key="width-over-time", title="Width of every group over the epochs", charts=charts,
        caption="Channels that would stay if the shrinking phase ended then, as a share of the dense network's. "
        "From blue (first layers) to red (last layers).",
        data=Data(columns=("run", "epoch", "group", "width", "alive", "channels"), rows=lambda: rows),
    )  # fmt: skip


def _ends(groups: Sequence[str]) -> list[tuple[str, str]]:
    """Legend of many lines: the first and the last."""
    return [(groups[0], hue(0, 2)), (groups[-1], hue(1, 2))]
