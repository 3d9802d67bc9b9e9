"""Force a plan's dead channels to zero without cutting them out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.surgery.attention import adapted, owner_of
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.plan import GATE, PrunePlan


@contextlib.contextmanager
def masked(model: nn.Module, plan: PrunePlan, *, constant: bool = False) -> Iterator[None]:
    """The model with the plan's dead channels forced to zero; as it was again afterwards.

    Args:
        model: The model the plan was made for, with or without gates.
        plan: What stays.
        constant: Let the gates multiply by their running salience instead of s(x).
    """
    gates, handles = find_gates(model), []
    before = {n: (g.mask.clone(), g.input_mask.clone(), g.masked, g.blend) for n, g in gates.items()}
    attention = [owner_of(model, spec.module) for spec in plan.gates if spec.at_input]
    try:
        for spec in plan.gates:
            prefix = f"{spec.module}.{GATE}." if spec.module else f"{GATE}."
            own, fed = (plan.tensors[prefix + key][0] for key in ("mask", "input_mask"))
            if spec.module in gates:
                gate = gates[spec.module]
                mask_gate_(gate, own, fed)
                gate.blend = 1.0 if constant else gate.blend
            else:
                layer = model.get_submodule(spec.module)
                keep = torch.zeros(plan.shapes[prefix + "mask"][0])
                keep[own] = 1
                handles.append(_mask_hook(layer, keep.repeat_interleave(spec.repeat), spec.axis, spec.at_input))
        with adapted(attention):
            yield
    finally:
        for handle in handles:
            handle.remove()
        for name, (mask, input_mask, flag, blend) in before.items():
            gate = gates[name]
            gate.mask.copy_(mask)
            gate.input_mask.copy_(input_mask)
            gate.masked, gate.blend = flag, blend


def mask_gate_(gate: Any, own: list[int], fed: list[int]) -> None:
    """Let only these channels through a gate, and let its generator see only these inputs."""
    with torch.no_grad():
        for buffer, kept in ((gate.mask, own), (gate.input_mask, fed)):
            buffer.zero_()
            buffer[kept] = 1
    gate.masked = True


def _mask_hook(layer: nn.Module, keep: Tensor, axis: int, at_input: bool) -> Any:
    def apply(x: Tensor) -> Tensor:
        shape = [1] * x.ndim
        shape[axis] = -1
        return x * keep.to(x).reshape(shape)

    if at_input:
        return layer.register_forward_pre_hook(lambda _module, args: (apply(args[0]), *args[1:]))
    return layer.register_forward_hook(lambda _module, _args, out: apply(out))
