"""Optimizers by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pcshrink.shrinker import split_parameters
from pcshrink.train.muon import Muon, turning
from pcshrink.train.recipe.schema import OptimizerSection


def make_optimizer(
    model: nn.Module, settings: OptimizerSection, device: torch.device | None = None
) -> torch.optim.Optimizer:
    """Weight decay on matrices only: biases, norms and other vectors have none, nor has what turns.

    Args:
        model: The network.
        settings: Of the recipe.
        device: Where it is going to train.
    """
    groups = split_parameters(model, settings.weight_decay)
    if settings.name == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas)
    options: dict[str, Any] = {"lr": settings.lr, "momentum": settings.momentum}
    options["nesterov"] = settings.nesterov and settings.momentum > 0
    options["fused"] = _fuses(model, device) or None
    if settings.name == "sgd":
        return torch.optim.SGD(groups, **options)
    filters = turning(model)
    turned = [p for group in groups for p in group["params"] if p in filters]
    moved = [group | {"params": [p for p in group["params"] if p not in filters]} for group in groups]
    return Muon([*moved, {"params": turned, "turn": settings.turn / settings.lr}], **options)


def _fuses(model: nn.Module, device: torch.device | None) -> bool:
    """Whether one call may update all parameters, which takes a fifth of the time there on a CPU.

    On a GPU it would come in the way of scaled gradients.
    """
    sparse = any(getattr(module, "sparse", False) for module in model.modules())  # gradients of embeddings
    plain = all(p.is_floating_point() and p.is_cpu for p in model.parameters())
    return device is not None and device.type == "cpu" and plain and not sparse
