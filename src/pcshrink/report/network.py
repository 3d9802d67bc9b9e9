"""The network behind a run: its groups, what its layers cost, what stays; from the record, or by building it again."""

from __future__ import annotations

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


def layer_rows(run: Run) -> list[LayerRow]:
    """Every layer of the dense network, and what the plan leaves of it.

    A layer's multiply-adds go with the size of its weight, so the plan alone says what is left. Where gates choose for
    each input there is no plan, and what ran was measured.
    """
    shares = run.dynamic.shares if run.dynamic is not None else {}
    plan = run.saved.plan if run.saved is not None else None
    rows = []
    for layer in (run.network or {}).get("layers", []):
        weight = f"{layer['name']}.weight"
        kept = plan.tensors.get(weight, {}) if plan is not None else {}
        left, out = shares.get(layer["name"], 1.0), 1.0
        for axis, indices in kept.items():
            share = len(indices) / plan.shapes[weight][axis] if plan is not None else 1.0
            left *= share
            out = share if axis == 0 else out
        rows.append(
            LayerRow(
                name=layer["name"], madds_before=layer["madds"], madds_after=layer["madds"] * left, width_ratio=out
            )
        )
    return rows


def group_shares(run: Run) -> dict[str, tuple[float, float]]:
    """Group -> the share of the dense network's multiply-adds that its writers cause, before and after the cut."""
    rows = {row.name: row for row in layer_rows(run)}
    total = sum(row.madds_before for row in rows.values()) or 1
    shares = {}
    for group in (run.network or {}).get("groups", []):
        written = [rows[name] for name in group["writers"] if name in rows]
        before = sum(row.madds_before for row in written)
        shares[group["name"]] = (before / total, sum(row.madds_after for row in written) / total)
    return shares
