"""Cut a model as a plan says, and make one plan of two. Nothing is proven here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.coupling.rules.heads import HEADS
from pcshrink.errors import PlanMismatchError, ShrinkError
from pcshrink.graph.copies import duplicate
from pcshrink.graph.model import named_modules, named_tensors
from pcshrink.surgery.attention import adapt_
from pcshrink.surgery.gate import GATE
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.generated import generated_weights, unplug_
from pcshrink.surgery.plan import PrunePlan, require_plan
from pcshrink.surgery.reweigh import keep_weights_, make_plain_


def apply_plan(model: nn.Module, plan: PrunePlan) -> nn.Module:
    """Copy the model with every planned tensor cut and generated weights made plain, without proving anything."""
    present = check_plan(model, plan)
    made, memo, indices = generated_weights(model), dict[int, Any](), _Indices()
    for name, tensor in present.items():
        if name in plan.tensors or name in made:
            memo[id(tensor)] = _cut(made.get(name, tensor), plan.tensors.get(name, {}), indices)
    try:
        small = duplicate(model, memo)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        message = f"the model cannot be copied: {cause}. Remove tensors with a gradient history from it."
        raise ShrinkError(message) from error
    unplug_(small)
    correct_(small, plan)
    keep_weights_(model, small, plan)
    gates = find_gates(small)
    for spec in plan.gates:
        if spec.module in gates:
            gates[spec.module].resize_(spec)
    return small


def correct_(small: nn.Module, plan: PrunePlan) -> None:
    """Tell the modules whose tensors were cut how wide they are now."""
    for module, values in plan.attributes.items():
        for attribute, value in values.items():
            _set_number(small.get_submodule(module), attribute, value)
        if any(HEADS.match(attribute) for attribute in values):
            adapt_(small.get_submodule(module))
    make_plain_(small, plan)


def _number(module: nn.Module | None, attribute: str) -> object:
    """An attribute, or one item of it (``splits[1]``)."""
    name, _, item = attribute.rstrip("]").partition("[")
    value = getattr(module, name, None)
    if not item:
        return value
    if not isinstance(value, (list, tuple)) or not item.isdecimal():
        return None
    return dict(enumerate(value)).get(int(item))


def _set_number(module: nn.Module, attribute: str, value: int | float) -> None:
    name, _, item = attribute.rstrip("]").partition("[")
    if not item:
        setattr(module, name, value)
        return
    items = list(getattr(module, name))
    items[int(item)] = value
    setattr(module, name, type(getattr(module, name))(items))


class _Indices:
    """Lists of numbers as tensors; many tensors of a plan keep the same, and making one costs more than using it."""

    def __init__(self) -> None:
        self.made: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}

    def __call__(self, kept: list[int], device: torch.device) -> Tensor:
        key = (tuple(kept), device)
        if key not in self.made:
            self.made[key] = torch.from_numpy(np.array(kept, dtype=np.int64)).to(device)
        return self.made[key]


def _cut(tensor: Tensor, axes: dict[int, list[int]], indices: _Indices) -> Tensor:
    with torch.no_grad():
        smaller = tensor.detach()
        for axis, kept in axes.items():
            smaller = smaller.index_select(axis, indices(kept, tensor.device))
        if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            smaller = smaller.contiguous(memory_format=torch.channels_last)
        smaller = smaller.clone() if smaller.data_ptr() == tensor.data_ptr() else smaller
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(smaller, requires_grad=tensor.requires_grad)
    return smaller


def check_plan(model: nn.Module, plan: PrunePlan) -> dict[str, Tensor]:
    """Refuse a plan whose tensors or modules are not those of the model.

    Returns:
        Every parameter and buffer by every name it has: a tensor that is tied has several, and a plan knows one.
    """
    require_plan(plan)
    present = named_tensors(model, every_name=True)
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
    modules = dict(named_modules(model))
    for module, values in plan.attributes.items():
        for attribute in values:
            if not isinstance(_number(modules.get(module), attribute), (int, float)):
                message = f"the plan belongs to another model: {module!r} has no number {attribute!r} to correct"
                raise PlanMismatchError(message)
    return present


def compose(first: PrunePlan, second: PrunePlan) -> PrunePlan:
    """The plan that does at once what ``second`` does to the model that ``first`` leaves.

    Args:
        first: A plan for the original model.
        second: A plan for the compact model that ``first`` gives.
    """
    tensors = {name: dict(axes) for name, axes in first.tensors.items()}
    for name, axes in second.tensors.items():
        own = tensors.setdefault(name, {})
        for axis, kept in axes.items():
            own[axis] = [own[axis][i] for i in kept] if axis in own else list(kept)
    attributes = {module: dict(values) for module, values in first.attributes.items()}
    for module, values in second.attributes.items():
        attributes.setdefault(module, {}).update(values)
    groups = dict(first.groups)
    for name, kept in second.groups.items():
        groups[name] = [first.groups[name][i] for i in kept] if name in first.groups else list(kept)
    gates = {spec.module: spec for spec in first.gates} | {spec.module: spec for spec in second.gates}
    return replace(
        first,
        groups=groups,
        sizes=second.sizes | first.sizes,
        tensors=tensors,
        shapes=second.shapes | first.shapes,
        attributes=attributes,
        gates=tuple(gates.values()),
    )
