"""Prove the cut on one architecture."""

from __future__ import annotations

import time
from typing import Any

import torch

import pcshrink as pcs
from benchmarks.zoo.network import Network
from benchmarks.zoo.row import Row
from pcshrink.proof.discover import NOT_UNDERSTOOD
from pcshrink.surgery.gate import GATE
from testing.checks import LIMIT, outputs, random_keep, relative, same_top, stir_gates_

PATIENCE_S = 400  # of the processor's time
SHOWS = 1e-2  # two inputs give outputs that differ by this part at least
SMALL = 13_000_000  # parameters up to which float64 is tried as well


def prove(network: Network) -> Row:
    """The row of one architecture."""
    row, started = Row(network.name, network.family, network.shown), time.process_time()
    try:
        row.params = sum(p.numel() for p in network.build().parameters())
        _prove_in(row, network, torch.float32)
        if row.params <= SMALL and _runs_wide(network):
            _prove_in(row, network, torch.float64)
        row.outcome = "exact"
    except pcs.ShrinkError as error:
        # a refusal names its reason before anything was trained; afterwards it is too late
        refused = not row.groups and not any(words in str(error) for words in (NOT_UNDERSTOOD, "does not run"))
        row.outcome, row.note = "refused" if refused else "failed", f"{type(error).__name__}: {error}"
    except Exception as error:
        row.note = f"{type(error).__name__}: {error}"
    row.seconds = round(time.process_time() - started, 1)
    return row


def _runs_wide(network: Network) -> bool:
    """Whether the network itself runs in float64: some make float32 tensors of their own."""
    try:
        outputs(network.build().double(), network.example(torch.float64, 1))
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def _prove_in(row: Row, network: Network, dtype: torch.dtype) -> None:
    model, example, other = network.build().to(dtype), network.example(dtype, 1), network.example(dtype, 2)
    cost = pcs.profile(model, example)
    shrinker = pcs.attach_(model, example)
    row.groups, (row.madds_share, row.params_share) = len(shrinker.groups), _shares(shrinker, cost)
    row.note = _why_not(shrinker) if row.madds_share < 0.5 else ""
    calm = {name: value.clone() for name, value in model.state_dict().items() if f"{GATE}." in name}
    stir_gates_(model)
    if not network.chooses and relative(outputs(model, example), outputs(model, other)) < SHOWS:
        model.load_state_dict(calm, strict=False)  # many gates in a row left nothing of the input
    whole = outputs(model, other)
    plan = _plan(shrinker, network.chooses, example, other)
    small = pcs.compact(model, plan, example)
    shrinker.mask_(plan)
    kind = str(dtype).removeprefix("torch.")
    if network.chooses:  # boxes jump where scores are equal to rounding, so the same choices are imposed on both
        row.differences[kind] = pcs.verify(model, small, other)
        return
    expected, got = outputs(model, other), outputs(small, other)
    row.differences[kind] = worst = relative(expected, got)
    if not worst <= LIMIT[dtype] and dtype == torch.float32:
        worst = 0.0 if pcs.verify(model, small, other) is not None else worst  # rounding, which float64 tells apart
    if not worst <= LIMIT[dtype] or not same_top(expected, got, max(LIMIT[dtype], row.differences[kind])):
        raise AssertionError(f"masked and compact differ by {worst:.2g}")
    if relative(whole, expected) < 10 * LIMIT[torch.float32]:
        raise AssertionError("the cut does not show in the output, which proves nothing")
    if relative(expected, outputs(model, example)) < 10 * LIMIT[torch.float32]:
        raise AssertionError("the input does not show in the output, which proves nothing")


def _plan(shrinker: pcs.Shrinker, chooses: bool, example: Any, other: Any) -> pcs.PrunePlan:
    """A random part of every group, or 0.7 of each where little of the input would be left."""
    plan = shrinker.plan(random_keep(shrinker, seed=1))
    if chooses:
        return plan
    shrinker.mask_(plan)
    lost = relative(outputs(shrinker.model, example), outputs(shrinker.model, other)) < SHOWS
    shrinker.unmask_()
    return shrinker.plan(random_keep(shrinker, seed=1, share=0.7)) if lost else plan


def _shares(shrinker: pcs.Shrinker, cost: Any) -> tuple[float, float]:
    """The part of madds and parameters in layers that read or write a group, and in attention whose heads can leave."""
    touched = {name for g in shrinker.groups for name in (*g.writers, *g.readers)}
    madds = params = 0
    for layer in cost.layers:
        inside = layer.kind == "matmul" and any(name.startswith(f"{layer.name}.") for name in touched)
        if layer.name in touched or inside:
            madds, params = madds + layer.madds, params + layer.params
    return madds / max(cost.madds, 1), params / max(cost.params, 1)


def _why_not(shrinker: pcs.Shrinker) -> str:
    """The reason most layers stay."""
    reasons = [r.split(" in '")[0] + r.partition("'")[2].partition("'")[2] for r in shrinker.refused.values()]
    reasons = [r for r in reasons if "network output" not in r]
    return max(set(reasons), key=reasons.count) if reasons else ""
