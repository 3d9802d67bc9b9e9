"""Look before you train: what of a model can shrink, what a ratio would leave, and why the rest stays."""

from __future__ import annotations

import warnings
from typing import Any, get_args

import torch

from pcshrink.common.tables import text_table
from pcshrink.config import Convention
from pcshrink.measure import Profile, profile
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.models import create, default_input
from pcshrink.shrinker import attach_
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_

CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
INDENT = "  "


def inspect_model(
    name: str, shape: tuple[int, ...] | None = None, ratio: float = 0.5, *, align: int = 1, batch: int = 2
) -> dict[str, Any]:
    """Everything ``pcshrink inspect`` shows, as plain data.

    Args:
        name: A model as ``pcshrink.models.create`` takes it.
        shape: One input sample without the batch axis; a guess by default.
        ratio: Share of the channels of each group that leaves.
        align: Kept widths are multiples of this.
        batch: Samples in the example input.

    Raises:
        ConfigError: There is no such model, or a value is impossible.
        TraceError: The model does not run on such an input.
        NoSitesError: Nothing can shrink.
    """
    config = ShrinkConfig(ratio=ratio, align=align)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the model's own library, about itself
        model = create(name).eval()
    shape = shape or default_input(model)
    example = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
    dense = {c: profile(model, example, c) for c in CONVENTIONS}
    shrinker = attach_(model, example, config)
    keep = {g.name: torch.arange(g.channels) >= g.k for g in shrinker.groups}
    small = apply_plan(model, shrinker.plan(keep))
    gated = {c: profile(small, example, c) for c in CONVENTIONS}
    remove_gates_(small)
    folded = {c: profile(small, example, c) for c in CONVENTIONS}
    return {
        "model": name,
        "input": list(shape),
        "ratio": ratio,
        "groups": [
            {"name": g.name, "channels": g.channels, "keep": g.channels - g.k, "writers": list(g.writers),
             "readers": list(g.readers)}
            for g in shrinker.groups
        ],
        "stays": dict(shrinker.refused),
        "layers": _layers(dense["layers"], folded["layers"]),
        "costs": {
            c: {"dense": _costs(dense[c]), "folded": _costs(folded[c]), "gated": _costs(gated[c])}
            for c in CONVENTIONS
        },
    }  # fmt: skip


def _layers(dense: Profile, folded: Profile) -> list[dict[str, Any]]:
    """Convolutions and linear layers in the order they run, with their multiply-adds before and after."""
    left = {row.name: row.madds for row in folded.layers}
    return [
        {"name": row.name, "kind": row.kind, "madds": row.madds, "left": left.get(row.name, 0)}
        for row in dense.layers
        if row.kind in ("conv", "linear")
    ]


def _costs(counted: Profile) -> dict[str, int]:
    return {"madds": counted.madds, "params": counted.params, "mem_access": counted.mem_access}


def inspection_text(inspection: dict[str, Any]) -> str:
    """The same for people."""
    groups, stays = inspection["groups"], inspection["stays"]
    channels = sum(group["channels"] for group in groups)
    sections = [
        [f"{inspection['model']}, input {'x'.join(map(str, inspection['input']))}"],
        [f"{len(groups)} groups can shrink, {channels} channels in all:", _groups_table(groups)],
        [f"what a ratio of {inspection['ratio']} would leave, for one sample:", _costs_table(inspection["costs"])],
        [f"{len(stays)} layers stay whole:", text_table(list(stays.items()), "<", indent=INDENT)],
    ]
    return "\n\n".join("\n".join(filter(None, section)) for section in sections)


def _groups_table(groups: list[dict[str, Any]]) -> str:
    rows = []
    for group in groups:
        others = ", ".join(writer for writer in group["writers"] if writer != group["name"])
        rows.append([group["name"], str(group["channels"]), str(group["keep"]), others])
    return text_table(rows, "<>><", head=["group", "channels", "left", "tied to"], indent=INDENT)


def _costs_table(costs: dict[str, dict[str, dict[str, int]]]) -> str:
    rows = []
    for metric in ("madds", "params", "mem_access"):
        for convention, counted in costs.items():
            if metric == "params" and convention != CONVENTIONS[0]:
                continue  # the same in both
            dense, folded, gated = (counted[kind][metric] for kind in ("dense", "folded", "gated"))
            shown = "both" if metric == "params" else convention
            share = f"{100 * folded / max(dense, 1):.1f} %"
            rows.append([metric, shown, f"{dense:,}", f"{folded:,}", share, f"{gated:,}"])
    head = ["", "convention", "dense", "compact", "left", "with gates"]
    return text_table(rows, "<<>", head=head, indent=INDENT)
