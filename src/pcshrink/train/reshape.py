"""What is cut in all processes alike, and what masks let through."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.plan import PrunePlan
from pcshrink.train.session import Session

log = logging.getLogger(__name__)


def agreed(session: Session, keep: dict[str, Tensor]) -> dict[str, Tensor]:
    """The choice of the first process, so that all cut alike; they should agree anyhow."""
    keep = {name: mask.cpu() for name, mask in keep.items()}
    first: dict[str, Tensor] = session.fabric.broadcast(keep)
    if any(not torch.equal(first[name], own) for name, own in keep.items()):
        log.warning("process %d had chosen other channels than the first one", session.fabric.global_rank)
    return first


def cut_(session: Session, keep: dict[str, Tensor]) -> bool:
    """Cut channels out of a session's network, and tell those who watch.

    Returns:
        Whether there was anything to cut.
    """
    if all(bool(k.all()) for k in keep.values()):
        return False
    session.callbacks.before_cut(session, keep)
    session.cut_(keep)
    session.callbacks.after_cut(session)
    return True


def leak(session: Session, model: nn.Module, plan: PrunePlan) -> float:
    """The largest factor that any evaluation image gives to a channel that the plan removes."""
    worst = largest_factor(model, plan, session.data.val.batches())
    if session.fabric.world_size == 1:
        return worst
    return float(session.fabric.all_reduce(torch.tensor(worst, device=session.fabric.device), reduce_op="max"))


@torch.no_grad()
def largest_factor(model: nn.Module, plan: PrunePlan, batches: Iterator[Any]) -> float:
    """The largest factor any of this process's inputs gives to a channel that the plan removes."""
    gates, worst = find_gates(model), 0.0

    def watch(dead: Tensor) -> Any:
        def look(factor: Tensor) -> None:
            nonlocal worst
            if len(dead):
                worst = max(worst, float(factor[..., dead].abs().max()))

        return look

    was = model.training
    try:
        for spec in plan.gates:
            gate = gates[spec.module]
            stays = torch.zeros(gate.spec.channels, dtype=torch.bool)
            stays[plan.passing(spec)] = True
            gate.listener = watch((~stays).nonzero().flatten().to(gate.mask.device))
        model.eval()
        dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        with unmasked(model):
            for images, _ in batches:
                model(images.to(dtype))
    finally:
        model.train(was)
        for gate in gates.values():
            gate.listener = None
    return worst


@contextlib.contextmanager
def unmasked(model: nn.Module) -> Iterator[None]:
    """The gates that decide by the input decide alone for a while; no others could open a channel again."""
    free = [gate for gate in find_gates(model).values() if gate.READS_INPUT and gate.masked]
    for gate in free:
        gate.masked = False
    try:
        yield
    finally:
        for gate in free:
            gate.masked = True
