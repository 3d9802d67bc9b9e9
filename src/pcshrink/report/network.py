"""The network behind a run: its groups, what its layers cost, what stays; from the record, or by building it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from pcshrink.artifact.builders import build, is_known
from pcshrink.errors import ShrinkError
from pcshrink.measure import profile
from pcshrink.methods.baselines import RandomConfig
from pcshrink.report.runs import Run
from pcshrink.shrinker import attach_
from pcshrink.train.facts import Costs
from pcshrink.train.observe import network_facts


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """A convolution or linear layer before and after the cut; where nothing is cut, ``after`` is for the mean input."""

    name: str
    madds_before: int
    madds_after: float
    width_ratio: float


def with_network(run: Run) -> Run:
    """The run with what is known of its network; without it where its builder is not one of the known libraries."""
    if run.history is not None and run.history.network:
        return replace(run, network=run.history.network)
    saved = run.saved
    if saved is None or saved.builder is None or saved.input_shape is None or not is_known(saved.builder):
        return run
    try:
        facts, dense = _rebuild(run)
    except ShrinkError:
        return run  # the sections that need it say that it is not known
    return replace(run, network=facts, result=run.result | {"dense": dense | run.dense} if run.result else {})


def _rebuild(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    assert run.saved is not None
    assert run.saved.builder is not None
    model = build(run.saved.builder, run.saved.builder_args).eval()
    example = torch.zeros(2, *(run.saved.input_shape or ()))
    layers, costs = profile(model, example), asdict(Costs.of(model, example))
    section = run.recipe.get("shrink") or {}
    include, exclude = (tuple(section.get(key) or ()) for key in ("include", "exclude"))
    shrinker = attach_(model, example, RandomConfig(prove=False, include=include, exclude=exclude))
    return network_facts(shrinker.groups, shrinker.refused, layers), costs


def part_rows(run: Run, layer: Mapping[str, Any]) -> list[LayerRow]:
    """What stands in the place of a recorded layer, for most methods the layer itself, and what is left of it.

    A layer's multiply-adds go with the size of its weight, so the plan alone says what is left. Where gates choose for
    each input there is no plan, and what ran was measured.
    """
    plan = run.saved.plan if run.saved is not None else None
    ran = run.dynamic.shares.get(layer["name"], 1.0) if run.dynamic is not None else 1.0
    rows = []
    for name, madds in (layer.get("parts") or {layer["name"]: layer["madds"]}).items():
        left, out, weight = ran, 1.0, f"{name}.weight"
        for axis, indices in plan.tensors.get(weight, {}).items() if plan is not None else ():
            share = len(indices) / plan.shapes[weight][axis] if plan is not None else 1.0
            left *= share
            out = share if axis == 0 else out
        rows.append(LayerRow(name=name, madds_before=madds, madds_after=madds * left, width_ratio=out))
    return rows


def layer_rows(run: Run) -> list[LayerRow]:
    """Every layer of the dense network, and what is left of it."""
    rows = []
    for layer in (run.network or {}).get("layers", []):
        parts = part_rows(run, layer)
        after = sum(part.madds_after for part in parts)
        rows.append(
            LayerRow(
                name=layer["name"], madds_before=layer["madds"], madds_after=after, width_ratio=parts[-1].width_ratio
            )
        )
    return rows


def group_shares(run: Run) -> dict[str, tuple[float, float | None]]:
    """Group -> the share of the dense network's multiply-adds that its writers cause, before and after the cut.

    What is left is None where it is not known.
    """
    layers = (run.network or {}).get("layers", [])
    parts = {part.name: part for layer in layers for part in part_rows(run, layer)}
    total = sum(layer["madds"] for layer in layers) or 1
    shares = {}
    for group in (run.network or {}).get("groups", []):
        written = [parts[name] for name in group["writers"] if name in parts]
        before = sum(part.madds_before for part in written)
        after = sum(part.madds_after for part in written) / total if run.layers_known else None
        shares[group["name"]] = (before / total, after)
    return shares
