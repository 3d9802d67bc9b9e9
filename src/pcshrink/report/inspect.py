"""Look before you train: what of a model can shrink, what a ratio would leave, and why the rest stays."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from pcshrink.config import ShrinkConfig
from pcshrink.errors import ConfigError
from pcshrink.measure import Profile, profile
from pcshrink.models import create, default_input
from pcshrink.shrinker import attach_
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_

CONVENTIONS = ("layers", "paper")


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
    dense = {c: profile(model, example, c) for c in CONVENTIONS}  # type: ignore[arg-type]
    shrinker = attach_(model, example, config)
    keep = {g.name: torch.arange(g.channels) >= g.k for g in shrinker.groups}
    small = apply_plan(model, shrinker.plan(keep))
    gated = {c: profile(small, example, c) for c in CONVENTIONS}  # type: ignore[arg-type]
    remove_gates_(small)
    folded = {c: profile(small, example, c) for c in CONVENTIONS}  # type: ignore[arg-type]
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


def inspection_text(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{found['model']}, input {'x'.join(map(str, found['input']))}", ""]
    groups = found["groups"]
    lines.append(f"{len(groups)} groups can shrink, {sum(g['channels'] for g in groups)} channels in all:")
    wide = max(len(g["name"]) for g in groups)
    for g in groups:
        others = ", ".join(w for w in g["writers"] if w != g["name"])
        tied = f"  with {others}" if others else ""
        lines.append(f"  {g['name']:{wide}}  {g['channels']:5} -> {g['keep']:5} channels{tied}")
    lines += ["", f"what a ratio of {found['ratio']} would leave, for one sample:"]
    lines.append(f"  {'':12}{'convention':12}{'dense':>16}{'compact':>16}{'':9}{'with generators':>16}")
    for metric in ("madds", "params", "mem_access"):
        for convention, costs in found["costs"].items():
            if metric == "params" and convention != "layers":
                continue
            dense, folded, gated = (costs[k][metric] for k in ("dense", "folded", "gated"))
            shown = "both" if metric == "params" else convention
            share = f"{100 * folded / max(dense, 1):.1f} %"
            lines.append(f"  {metric:12}{shown:12}{dense:16,}{folded:16,}{share:>9}{gated:16,}")
    lines += ["", f"{len(found['stays'])} layers stay whole:"]
    wide = max((len(n) for n in found["stays"]), default=0)
    lines += [f"  {name:{wide}}  {reason}" for name, reason in found["stays"].items()]
    return "\n".join(lines)


def parse_shape(text: str) -> tuple[int, ...]:
    """``3,224,224`` as numbers.

    Raises:
        ConfigError: It is something else.
    """
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        message = f"--input wants sizes such as 3,224,224 (one sample, no batch axis), got {text!r}"
        raise ConfigError(message)
    return shape
