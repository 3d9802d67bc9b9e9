"""Force a plan's dead channels to zero without cutting them out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.errors import PlanMismatchError
from pcshrink.surgery.attention import adapted, owner_of
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.plan import PrunePlan


@contextlib.contextmanager
def masked(model: nn.Module, plan: PrunePlan, *, constant: bool = False) -> Iterator[None]:
    """The model with the plan's dead channels forced to zero; as it was again afterwards.

    Args:
        model: The model the plan was made for, with or without gates.
        plan: What stays.
        constant: Let the gates multiply by their constants instead of what they make of the input.
    """
    gates, handles = find_gates(model), []
    before = {name: (gate.restrictions(), gate.hold(constant)) for name, gate in gates.items()}
    attention = [owner_of(model, spec.module) for spec in plan.gates if spec.at_input]
    try:
        for spec in plan.gates:
            if spec.module in gates:
                plan.restrict(spec, gates[spec.module])
            else:
                layer = model.get_submodule(spec.module)
                keep = torch.zeros(plan.shapes[spec.prefix + "mask"][0])
                keep[plan.passing(spec)] = 1
                handles.append(_mask_hook(layer, keep.repeat_interleave(spec.repeat), spec.axis, spec.at_input))
        with adapted(attention):
            yield
    finally:
        for handle in handles:
            handle.remove()
        for name, (restrictions, held) in before.items():
            gates[name].restore(restrictions)
            gates[name].unhold(held)


def mask_(model: nn.Module, plan: PrunePlan) -> None:
    """Let the gates of a model pass only what a plan keeps, from now on.

    Raises:
        PlanMismatchError: The model does not have the plan's gates.
    """
    gates = find_gates(model)
    for spec in plan.gates:
        if spec.module not in gates:
            message = f"the plan belongs to another model: there is no gate at {spec.module!r}"
            raise PlanMismatchError(message)
        plan.restrict(spec, gates[spec.module])


def _mask_hook(layer: nn.Module, keep: Tensor, axis: int, at_input: bool) -> Any:
    def apply(x: Tensor) -> Tensor:
        shape = [1] * x.ndim
        shape[axis] = -1
        return x * keep.to(x).reshape(shape)

    if at_input:
        return layer.register_forward_pre_hook(lambda _module, args: (apply(args[0]), *args[1:]))
    return layer.register_forward_hook(lambda _module, _args, out: apply(out))
