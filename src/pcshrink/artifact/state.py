"""What a model holds, taken apart into tensors and plain data: ties, buffers, gates, constant scales."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.artifact.record import GateState, ScaleState
from pcshrink.errors import CheckpointError, ShrinkWarning
from pcshrink.surgery.fold import ConstantScale
from pcshrink.surgery.gate import Gate
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.plan import PrunePlan

SCALE = "pcs_scale"


def slots(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Every place of a parameter or buffer: full name, owner, own name, tensor. Shared ones recur."""
    for path, module in model.named_modules(remove_duplicate=False):
        for table in (module._parameters, module._buffers):
            for leaf, tensor in table.items():
                if tensor is not None:
                    yield f"{path}.{leaf}" if path else leaf, module, leaf, tensor


def names_in_plan(model: nn.Module, plan: PrunePlan | None) -> dict[str, str]:
    """For every name of a tensor that a plan cuts, the name by which the plan knows it: tied tensors have several."""
    if plan is None:
        return {}
    known = {id(tensor): name for name, _, _, tensor in slots(model) if name in plan.tensors}
    return {name: known[id(tensor)] for name, _, _, tensor in slots(model) if id(tensor) in known}


def take_apart(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a model, each once and ready to be written, and which names stand for the same one."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    storages: dict[int, str] = {}
    for name, _, _, tensor in slots(model):
        if tensor.is_meta or tensor.layout is not torch.strided:
            what = "has no values (meta device)" if tensor.is_meta else f"has layout {tensor.layout}"
            message = f"{name!r} {what}, so the model cannot be saved"
            raise CheckpointError(message)
        place = tensor.data_ptr() if tensor.numel() else id(tensor)
        key = (place, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device)
        if key in known:
            tied[name] = known[key]
            continue
        storage = tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)
        if storage in storages:
            other = storages[storage]
            message = f"{name!r} and {other!r} are different views of one memory; they are saved separately"
            warnings.warn(message, ShrinkWarning, stacklevel=4)
        plain = tensor.detach().to("cpu").contiguous()
        tensors[name] = plain.clone() if storage in storages else plain
        known[key] = storages[storage] = name
    return tensors, tied


def volatile(model: nn.Module) -> tuple[str, ...]:
    """The buffers that a state_dict leaves out."""
    return tuple(name for name, owner, leaf, _ in slots(model) if leaf in owner._non_persistent_buffers_set)


def frozen(model: nn.Module) -> tuple[str, ...]:
    """The parameters that do not require gradients."""
    return tuple(n for n, _, _, t in slots(model) if isinstance(t, nn.Parameter) and not t.requires_grad)


def gate_states(model: nn.Module) -> tuple[GateState, ...]:
    """All gates, in the order they were hooked up: a layer may feed one gate and be scaled by another."""
    gates = find_gates(model).values()
    order = {id(gate): place for place, gate in reversed(list(enumerate(_hooked(model, Gate))))}
    ordered = sorted(gates, key=lambda gate: order.get(id(gate), -1))
    return tuple(GateState(spec=g.spec, switches={name: getattr(g, name) for name in g.SWITCHES}) for g in ordered)


def _hooked(model: nn.Module, owner: type) -> list[Any]:
    """The objects of a type whose methods are hooks on the model, oldest first: hook keys only ever grow."""
    hooks = [
        (key, getattr(hook, "__self__", None))
        for module in model.modules()
        for table in (module._forward_pre_hooks, module._forward_hooks)
        for key, hook in table.items()
        if isinstance(getattr(hook, "__self__", None), owner)
    ]
    return [each for _, each in sorted(hooks, key=lambda pair: pair[0])]


def scale_states(model: nn.Module) -> tuple[ScaleState, ...]:
    """The constant scales of a folded model."""
    scales = []
    for name, module in model.named_modules():
        for table, at_input in ((module._forward_pre_hooks, True), (module._forward_hooks, False)):
            for hook in table.values():
                constant = getattr(hook, "__self__", None)
                if isinstance(constant, ConstantScale):
                    scales.append(ScaleState(module=name, axis=constant.axis, at_input=at_input))
    return tuple(scales)
