"""Layer by layer: the time each takes and why it is not faster, and the layers that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pcshrink.report.bars import Bar, bars
from pcshrink.report.compare import listing, percent
from pcshrink.report.draw import colour
from pcshrink.report.lanes import Channels, Layer, network_picture
from pcshrink.report.network import part_rows
from pcshrink.report.parts import Data, Figure, Section, Table
from pcshrink.report.runs import Run

MOST_LAYERS = 16


def times(runs: Sequence[Run]) -> Section:
    """What every layer takes before and after, those that lost the most first."""
    section = Section(key="times", title="Time by layer: why not faster?")
    timed = [(place, run, run.times) for place, run in enumerate(runs) if run.times is not None]
    for run in (run for run in runs if run.times is None):
        section.missing.append(
            f"{run.name}: its layers were not timed; `pcshrink report --time` does it on this machine when the run has "
            "finished."
        )
    if not timed:
        return section
    longest = max(layer["before_ms"] for _, _, timing in timed for layer in timing["layers"])
    unit, scale = ("ms", 1.0) if longest >= 0.1 else ("µs", 1000.0)
    charts, rows = [], []
    for place, run, timing in timed:
        slowest = sorted(timing["layers"], key=lambda layer: -float(layer["before_ms"]))[:MOST_LAYERS]
        lines = [
            Bar(name=layer["name"], before=layer["before_ms"], after=layer["after_ms"],
                note=f"{scale * layer['before_ms']:.3g} → {scale * layer['after_ms']:.3g}")
            for layer in slowest
        ]  # fmt: skip
        alt = f"{unit} for each layer, {run.name}: " + "; ".join(f"{b.name} {b.note}" for b in lines) + "."
        charts.append((run.name, bars(alt, lines, longest, colour(place), ("layer", unit))))
        rows += [[run.name, *_timed_row(layer)] for layer in timing["layers"]]
        section.text.append(_whole(run, timing))
        section.tables.append(_why(run, timing))
    section.figures.append(
        Figure(
            key="layer-times", title="Time of every layer, dense and compact", charts=charts,
            caption=f"Light: dense. Solid: compact. Each layer measured by itself; at most {MOST_LAYERS} are drawn.",
            data=Data(columns=("run", "layer", "before_ms", "after_ms", "madds_ratio", "why"), rows=lambda: rows),
        )
    )  # fmt: skip
    return section


def _timed_row(layer: dict[str, object]) -> list[object]:
    return [layer["name"], layer["before_ms"], layer["after_ms"], layer["madds_ratio"], layer["reason"]]


def _whole(run: Run, timing: dict[str, Any]) -> str:
    ratio = timing["ratio"]
    return (
        f"{run.name}, {timing['runtime']}, one sample, {timing['threads']} thread{'s' * (timing['threads'] > 1)}: "
        f"{timing['dense_ms']:.2f} ms dense, {timing['compact_ms']:.2f} ms compact, a ratio of {ratio['value']:.2f} "
        f"({ratio['low']:.2f} to {ratio['high']:.2f})."
    )


def _why(run: Run, timing: dict[str, Any]) -> Table:
    lost = [layer for layer in timing["layers"] if layer["reason"]][:MOST_LAYERS]
    rows = [
        [f"{layer['name']}\n{layer['reason']}", "{}×{} → {}×{}".format(*layer["before"], *layer["after"]),
         percent(layer["madds_ratio"]), percent(layer["after_ms"] / layer["before_ms"])]
        for layer in lost
    ]  # fmt: skip
    heading = f"{run.name}: layers whose time did not follow" if rows else f"{run.name}: every layer's time followed"
    return Table(heading=heading, columns=("layer and why", "in × out>", "madds left>", "time left>"), rows=rows)


def _pictures(runs: Sequence[Run]) -> Figure | None:
    """Every network drawn, with its groups; runs with the same network share a picture."""
    charts, rows, seen = [], [], []
    for run in runs:
        facts = run.network
        if facts is None or not facts.get("groups") or facts in seen:
            continue
        seen.append(facts)
        parts = [part for layer in facts["layers"] for part in part_rows(run, layer)]
        known = run.layers_known
        layers = [Layer(name=p.name, before=p.madds_before, after=p.madds_after if known else None) for p in parts]
        groups = [Channels(name=g["name"], writers=g["writers"], readers=g["readers"]) for g in facts["groups"]]
        charts.append((run.name, network_picture(layers, groups, facts["stays"])))
        rows += [
            [run.name, group["name"], group["channels"], kind, name]
            for group in facts["groups"]
            for kind in ("writers", "readers")
            for name in group[kind]
        ]
    if not charts:
        return None
    return Figure(
        key="network", title="Which channels leave together", charts=charts,
        caption="Rows: layers in the order they run. A line: a group, with a dot at each layer that writes its "
        "channels and a ring at each that reads them. A grey square: the layer keeps its output channels. Bars: "
        "multiply-adds, dense (light) and compact (solid).",
        data=Data(columns=("run", "group", "channels", "role", "layer"), rows=lambda: rows),
    )  # fmt: skip


def stays(runs: Sequence[Run]) -> Section:
    """Layers whose output channels stay, and the reasons."""
    section = Section(key="stays", title="Layers that stay and why")
    pictures = _pictures(runs)
    if pictures is not None:
        section.figures.append(pictures)
    for run in runs:
        if run.network is None:
            section.missing.append(f"{run.name}: its network is not known here, so its layers cannot be listed.")
            continue
        kept = run.network.get("stays", {})
        reasons = Counter(kept.values())
        rows = [[name, reason] for name, reason in kept.items()]
        if not rows:
            section.text.append(f"{run.name}: every layer can shrink.")
            continue
        common = listing(f"{count} × {reason}" for reason, count in reasons.most_common(3))
        layers = "1 layer keeps its" if len(kept) == 1 else f"{len(kept)} layers keep their"
        section.text.append(f"{run.name}: {layers} output channels ({common}).")
        heading = run.name if len(runs) > 1 else ""
        section.tables.append(Table(heading=heading, columns=("layer", "why"), rows=rows, folded=len(rows) > 12))
    return section
