"""Apply a plan: a new, smaller model, proven equal to the masked one before it is handed out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError, PlanMismatchError, ShrinkError
from pcshrink.surgery.adapters import adapt_, adapted, owner_of
from pcshrink.surgery.attach import find_gates
from pcshrink.surgery.fold import fold_gates_
from pcshrink.surgery.graph import duplicate, unwrap
from pcshrink.surgery.heads import HEADS
from pcshrink.surgery.plan import GATE, PrunePlan
from pcshrink.surgery.verify import check


def compact(
    model: nn.Module, plan: PrunePlan, example_input: Any, gates: Literal["keep", "fold"] = "keep"
) -> nn.Module:
    """Cut everything a plan removes out of a copy of the model.

    Args:
        model: The model the plan was made for, with or without its gates; it is left untouched.
        plan: What stays.
        example_input: A tensor, or a tuple of arguments, for the proof.
        gates: "keep" the salience generators, or "fold" the running salience into the layers so that none is left.

    Returns:
        A new, ordinary, smaller model whose output equals that of the masked model.

    Raises:
        PlanMismatchError: The plan belongs to another model.
        VerificationError: The compact model does not agree with the masked one.
    """
    if gates not in ("keep", "fold"):
        message = f'gates must be "keep" or "fold", got {gates!r}'
        raise ConfigError(message)
    base = unwrap(model)
    small = apply_plan(base, plan)
    if gates == "fold":
        fold_gates_(small)
    around = functools.partial(masked, base, plan, constant=gates == "fold")
    check(base, small, example_input, ("the masked model", "the compact model"), around)
    return small


def apply_plan(model: nn.Module, plan: PrunePlan) -> nn.Module:
    """Copy the model with every planned tensor cut, without proving anything."""
    check_plan(model, plan)
    memo: dict[int, Any] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in plan.tensors:
            memo[id(tensor)] = _cut(tensor, plan.tensors[name])
    try:
        small = duplicate(model, memo)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        message = f"the model cannot be copied: {cause}. Remove tensors with a gradient history from it."
        raise ShrinkError(message) from error
    correct_(small, plan)
    present = find_gates(small)
    for spec in plan.gates:
        if spec.module in present:
            gate = present[spec.module]
            gate.spec, gate.truncated = spec, None  # the cut has been made
            gate.generator.fc1.in_features, gate.generator.fc2.out_features = spec.in_features, spec.channels
    return small


def correct_(small: nn.Module, plan: PrunePlan) -> None:
    """Tell the modules whose tensors were cut how wide they are now."""
    for module, values in plan.attributes.items():
        for attribute, value in values.items():
            _set_number(small.get_submodule(module), attribute, value)
        if any(HEADS.match(attribute) for attribute in values):
            adapt_(small.get_submodule(module))


def _number(module: nn.Module | None, attribute: str) -> object:
    """An attribute, or one item of it (``splits[1]``)."""
    name, _, item = attribute.rstrip("]").partition("[")
    value = getattr(module, name, None)
    if not item:
        return value
    if not isinstance(value, (list, tuple)) or not item.isdecimal():
        return None
    return dict(enumerate(value)).get(int(item))


def _set_number(module: nn.Module, attribute: str, value: int) -> None:
    name, _, item = attribute.rstrip("]").partition("[")
    if not item:
        setattr(module, name, value)
        return
    items = list(getattr(module, name))
    items[int(item)] = value
    setattr(module, name, type(getattr(module, name))(items))


def _cut(tensor: Tensor, axes: dict[int, list[int]]) -> Tensor:
    with torch.no_grad():
        smaller = tensor.detach()
        for axis, kept in axes.items():
            smaller = smaller.index_select(axis, torch.tensor(kept, dtype=torch.long, device=tensor.device))
        if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            smaller = smaller.contiguous(memory_format=torch.channels_last)
        smaller = smaller.clone() if smaller.data_ptr() == tensor.data_ptr() else smaller
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(smaller, requires_grad=tensor.requires_grad)
    return smaller


def check_plan(model: nn.Module, plan: PrunePlan) -> None:
    """Refuse a plan whose tensors or modules are not those of the model."""
    present = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, shape in plan.shapes.items():
        if name not in present:
            if f"{GATE}." in name:
                continue  # a model without gates takes the plan as well
            message = f"the plan belongs to another model: it cuts {name!r}, which {type(model).__name__} does not have"
            raise PlanMismatchError(message)
        if list(present[name].shape) != shape:
            message = (
                f"the plan belongs to another model: {name!r} has shape {tuple(present[name].shape)} here, but "
                f"{tuple(shape)} in the plan. Apply a plan to the model it was made for, and only once."
            )
            raise PlanMismatchError(message)
        for axis, kept in plan.tensors[name].items():
            if axis >= len(shape) or not kept or kept[-1] >= shape[axis] or sorted(set(kept)) != kept:
                message = f"damaged plan: impossible indices for axis {axis} of {name!r}"
                raise PlanMismatchError(message)
    modules = dict(model.named_modules())
    for module, values in plan.attributes.items():
        for attribute in values:
            if not isinstance(_number(modules.get(module), attribute), int):
                message = f"the plan belongs to another model: {module!r} has no number {attribute!r} to correct"
                raise PlanMismatchError(message)


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
