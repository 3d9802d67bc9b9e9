"""What an optimizer remembers, by parameter name, and how it survives a cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError, PlanMismatchError
from pcshrink.graph.model import unwrap
from pcshrink.surgery.plan import PrunePlan, require_plan

State = dict[str, dict[str, Any]]


def transfer(optimizer: torch.optim.Optimizer, model: nn.Module, small: nn.Module, plan: PrunePlan) -> Any:
    """An optimizer for the compact model that goes on where the one of the model before the cut stands.

    Momentum and other memory are cut as the weights were; learning rates and other options stay.

    Args:
        optimizer: The optimizer of ``model``.
        model: The model before the cut.
        small: What ``compact`` made of it.
        plan: What it was cut by.

    Returns:
        A new optimizer of the same class.

    Raises:
        PlanMismatchError: The optimizer holds parameters that are not the model's, or the plan is none.
        ConfigError: The optimizer is none, or remembers what cannot be cut.
    """
    require_plan(plan)
    if not isinstance(optimizer, torch.optim.Optimizer):
        message = f"transfer takes the optimizer of the model before the cut, got {type(optimizer).__name__}"
        raise ConfigError(message)
    names = {parameter: name for name, parameter in unwrap(model).named_parameters()}
    after = dict(unwrap(small).named_parameters())
    groups = []
    for group in optimizer.param_groups:
        strange = sum(p not in names for p in group["params"])
        if strange:
            message = f"{strange} parameters of the optimizer are not the model's; pass the model it was made for"
            raise PlanMismatchError(message)
        kept = [names[p] for p in group["params"] if names[p] in after]  # folded gates are gone
        named = {"param_names": kept} if "param_names" in group else {}
        groups.append(group | {"params": [after[name] for name in kept]} | named)
    new = type(optimizer)(groups, **optimizer.defaults)
    set_optimizer_state(unwrap(small), new, cut_state(optimizer_state(unwrap(model), optimizer), plan))
    return new


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """What the optimizer remembers, by parameter name."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        names[p]: {k: v for k, v in memory.items() if v is not None}
        for p, memory in optimizer.state.items()
        if p in names
    }


def set_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimizer the memory of another; parameters it does not name start afresh."""
    for name, parameter in model.named_parameters():
        if name in state:
            optimizer.state[parameter] = {
                k: _placed(v, parameter) if isinstance(v, Tensor) else v for k, v in state[name].items()
            }


def _placed(value: Tensor, parameter: Tensor) -> Tensor:
    if value.shape != parameter.shape:
        return value.clone()  # a step counter
    return torch.empty_like(parameter).copy_(value)


def cut_state(state: State, plan: PrunePlan) -> State:
    """The same memory for the model that a plan leaves.

    Raises:
        ConfigError: Some of it belongs to a tensor that is cut but has another shape, so nobody knows what to cut.
    """
    smaller: State = {}
    for name, memory in state.items():
        axes = plan.tensors.get(name, {})
        shape = plan.shapes.get(name)
        smaller[name] = {}
        for key, value in memory.items():
            if isinstance(value, Tensor) and shape is not None and list(value.shape) == shape:
                for axis, kept in axes.items():
                    value = value.index_select(axis, torch.tensor(kept, device=value.device))
            elif shape is not None and _holds_tensors(value):
                message = (
                    f"the optimizer's {key!r} of {name!r} is not shaped like the parameter, so it cannot be cut; "
                    "make a new optimizer for the compact model"
                )
                raise ConfigError(message)
            smaller[name][key] = value
    return smaller


def _holds_tensors(value: object) -> bool:
    """Whether it is more than a number, such as the count of steps."""
    if isinstance(value, Tensor):
        return value.numel() > 1
    return isinstance(value, list | tuple) and any(map(_holds_tensors, value))
