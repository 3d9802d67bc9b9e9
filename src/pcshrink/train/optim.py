"""Optimizers by name, and their state by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.shrinker import split_parameters
from pcshrink.surgery.plan import PrunePlan
from pcshrink.train.recipe.schema import OptimizerSection

State = dict[str, dict[str, Any]]


def make_optimizer(model: nn.Module, settings: OptimizerSection) -> torch.optim.Optimizer:
    """Weight decay on matrices only: biases, norms and other vectors have none."""
    groups = split_parameters(model, settings.weight_decay)
    if settings.name == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas)
    nesterov = settings.nesterov and settings.momentum > 0
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=nesterov)


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
    """The same memory for the model that a plan leaves."""
    smaller: State = {}
    for name, memory in state.items():
        axes = plan.tensors.get(name, {})
        shape = plan.shapes.get(name)
        smaller[name] = {}
        for key, value in memory.items():
            if isinstance(value, Tensor) and shape is not None and list(value.shape) == shape:
                for axis, kept in axes.items():
                    value = value.index_select(axis, torch.tensor(kept, device=value.device))
            smaller[name][key] = value
    return smaller
