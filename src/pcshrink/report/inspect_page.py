"""``pcshrink inspect`` as a page: the network drawn, its groups, what would be left, and why the rest stays."""

from __future__ import annotations

from typing import Any

from pcshrink.report.compare import amount, percent
from pcshrink.report.lanes import Channels, Layer, network_picture
from pcshrink.report.page import fill
from pcshrink.report.parts import Data, Figure, Section, Table

MOST_NAMED = 4


def inspection_page(inspection: dict[str, Any]) -> str:
    """What ``inspect_model`` found, as an HTML page that needs no network and no script."""
    shape = "×".join(map(str, inspection["input"]))
    groups, stays = len(inspection["groups"]), len(inspection["stays"])
    about = f"input {shape}; {groups} groups can shrink; layers that stay whole: {stays}"
    footer = "Made by pcshrink before any training. This page needs no network and runs no script."
    return fill(
        "report.html", title=inspection["model"], about=about, footer=footer, refresh=0,
        sections=[_left(inspection), _groups(inspection), _stays(inspection)],
    )  # fmt: skip


def _left(inspection: dict[str, Any]) -> Section:
    rows = []
    for metric, name in (("madds", "multiply-adds"), ("params", "parameters"), ("mem_access", "memory access")):
        for convention, costs in inspection["costs"].items():
            if metric == "params" and convention != "layers":
                continue
            dense, folded, gated = (costs[kind][metric] for kind in ("dense", "folded", "gated"))
            counted = "" if metric == "params" else f", {convention} convention"
            rows.append([name + counted, amount(dense), amount(folded), percent(folded / max(dense, 1)), amount(gated)])
    return Section(
        key="left", title="What would be left",
        text=[f"If {percent(inspection['ratio'])} of the channels of every group left, for one sample:"],
        tables=[Table(columns=("", "dense>", "compact>", "left>", "with gates>"), rows=rows)],
    )  # fmt: skip


def _groups(inspection: dict[str, Any]) -> Section:
    total = sum(layer["madds"] for layer in inspection["layers"]) or 1
    cost = {layer["name"]: layer["madds"] for layer in inspection["layers"]}
    rows = []
    for group in inspection["groups"]:
        share = sum(cost.get(name, 0) for name in group["writers"]) / total
        others = [name for name in group["writers"] if name != group["name"]]
        rows.append([group["name"], _some(others), f"{group['channels']} → {group['keep']}", percent(share)])
    layers = [Layer(name=row["name"], before=row["madds"], after=row["left"]) for row in inspection["layers"]]
    groups = [Channels(name=g["name"], writers=g["writers"], readers=g["readers"]) for g in inspection["groups"]]
    figure = Figure(
        key="network", title="Which channels leave together",
        charts=[("", network_picture(layers, groups, inspection["stays"]))],
        caption="Rows: layers in the order they run. A line: a group, with a dot at each layer that writes its "
        "channels and a ring at each that reads them. A grey square: the layer keeps its output channels. Bars: "
        "multiply-adds, all (light) and left (solid).",
        data=Data(columns=(), rows=list),
        side=Table(columns=("group", "together with", "channels>", "of all madds>"), rows=rows),
    )  # fmt: skip
    return Section(key="groups", title="Groups", figures=[figure])


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _stays(inspection: dict[str, Any]) -> Section:
    rows = [[name, reason] for name, reason in inspection["stays"].items()]
    text = [] if rows else ["Every layer can shrink."]
    return Section(
        key="stays", title="Layers that stay and why", text=text,
        tables=[Table(columns=("layer", "why"), rows=rows)] if rows else [],
    )  # fmt: skip
