"""Changes of the network while it is being trained: cutting, masking, folding, with all state carried along."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.methods.select import lowest
from pcshrink.proof.compact import compact
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.fold import fold
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.mask import mask_gate_
from pcshrink.surgery.plan import GATE, PrunePlan
from pcshrink.train.optim import cut_state
from pcshrink.train.session import Session
from pcshrink.train.sync_norm import unsynchronise_

log = logging.getLogger(__name__)
# Below this a running salience has been exactly 0 for more than a hundred steps, so a cut changes nothing.
LONG_DEAD = 1e-6


def alive_above(session: Session) -> float | None:
    """The highest running salience among the channels that are being pushed down.

    None for the methods that push none down to zero before they are cut: truncation and the lasso.
    """
    assert session.shrinker is not None
    if session.shrinker.config.method != "shrink":
        return None
    selected = session.shrinker.selected()
    highest = [float(g.running[selected[g.name]].max()) for g in session.shrinker.groups if selected[g.name].any()]
    return max(highest, default=0.0)


def dead_now(session: Session) -> dict[str, Tensor]:
    """For each group what stays if only channels that are selected and long dead leave."""
    assert session.shrinker is not None
    return _agreed(
        session,
        {g.name: ~(lowest(g.running, g.k) & (g.running <= LONG_DEAD)).cpu() for g in session.shrinker.groups},
    )


def final_keep(session: Session) -> dict[str, Tensor]:
    """For each group what stays at the end of the shrinking phase: all but the k lowest.

    With ``scope: global`` and the lasso, which fix no k for a group: all that are not dead.
    """
    assert session.shrinker is not None
    assert session.recipe.shrink is not None
    shrinker, settings = session.shrinker, session.recipe.shrink
    if settings.scope == "global" or settings.method == "lasso":
        return _agreed(session, {g.name: shrinker.keep(g).cpu() for g in shrinker.groups})
    return _agreed(session, {g.name: ~lowest(g.running, g.k).cpu() for g in shrinker.groups})


def _agreed(session: Session, keep: dict[str, Tensor]) -> dict[str, Tensor]:
    """The choice of the first process, so that all cut alike; they should agree anyhow."""
    agreed: dict[str, Tensor] = session.fabric.broadcast(keep)
    if any(not torch.equal(agreed[name], own) for name, own in keep.items()):
        log.warning("process %d had chosen other channels than the first one", session.fabric.global_rank)
    return agreed


def cut_(session: Session, keep: dict[str, Tensor]) -> bool:
    """Cut channels out of the model, its average and the optimizer's memory.

    Returns:
        Whether there was anything to cut.
    """
    assert session.shrinker is not None
    if all(bool(k.all()) for k in keep.values()):
        return False
    unsynchronise_(session.model)
    memory = session.memory()
    plan = session.shrinker.plan(keep)
    session.model = compact(session.model, plan, session.example)
    if session.average is not None:
        session.average = apply_plan(session.average, plan)
    session.add_cut(plan)
    session.reattach()
    session.prepare(cut_state(memory, plan))
    return True


def mask_(session: Session, keep: dict[str, Tensor]) -> None:
    """Force dead channels to zero from now on, without cutting them out."""
    assert session.shrinker is not None
    session.mask = session.shrinker.plan(keep)
    session.shrinker.mask_(session.mask)
    if session.average is not None:
        mask_average_(session.average, session.mask)


def mask_average_(model: nn.Module, plan: PrunePlan) -> None:
    """Mask the gates of a copy of the model."""
    gates = find_gates(model)
    for spec in plan.gates:
        prefix = f"{spec.module}.{GATE}." if spec.module else f"{GATE}."
        mask_gate_(gates[spec.module], plan.tensors[prefix + "mask"][0], plan.tensors[prefix + "input_mask"][0])


def fold_(session: Session) -> None:
    """Make the gates, constant by now, part of their layers, and train on without them."""
    memory = session.memory()
    unsynchronise_(session.model)
    session.model = fold(session.model)
    if session.average is not None:
        session.average = fold(session.average)
    session.shrinker, session.stage = None, "folded"
    session.prepare(memory)


def leak(session: Session, model: nn.Module, plan: PrunePlan) -> float:
    """The largest salience that any evaluation image gives to a channel that the plan removes."""
    worst = largest_salience(model, plan, session.data.val.batches())
    if session.fabric.world_size == 1:
        return worst
    return float(session.fabric.all_reduce(torch.tensor(worst, device=session.fabric.device), reduce_op="max"))


@torch.no_grad()
def largest_salience(model: nn.Module, plan: PrunePlan, batches: Any) -> float:
    """The largest salience any of this process's inputs gives to a channel that the plan removes."""
    gates, worst, handles = find_gates(model), 0.0, []

    def watch(dead: Tensor) -> Any:
        def look(module: nn.Module, args: Any, out: Tensor) -> None:
            nonlocal worst
            if len(dead):
                worst = max(worst, float(out[..., dead].max()))

        return look

    for spec in plan.gates:
        prefix = f"{spec.module}.{GATE}." if spec.module else f"{GATE}."
        gate = gates[spec.module]
        stays = torch.zeros(gate.spec.channels, dtype=torch.bool)
        stays[plan.tensors[prefix + "mask"][0]] = True
        dead = (~stays).nonzero().flatten().to(gate.running.device)
        handles.append(gate.generator.register_forward_hook(watch(dead)))
    was = model.training
    model.eval()
    try:
        dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        for images, _ in batches:
            model(images.to(dtype))
    finally:
        model.train(was)
        for handle in handles:
            handle.remove()
    return worst
