"""Optimizers by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pcshrink.shrinker import split_parameters
from pcshrink.train.muon import Muon, turning
from pcshrink.train.recipe.schema import OptimizerSection


def make_optimizer(model: nn.Module, settings: OptimizerSection) -> torch.optim.Optimizer:
    """Weight decay on matrices only: biases, norms and other vectors have none, nor has what turns."""
    groups = split_parameters(model, settings.weight_decay)
    if settings.name == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas)
    options: dict[str, Any] = {"lr": settings.lr, "momentum": settings.momentum}
    options["nesterov"] = settings.nesterov and settings.momentum > 0
    if settings.name == "sgd":
        return torch.optim.SGD(groups, **options)
    filters = turning(model)
    turned = [p for group in groups for p in group["params"] if p in filters]
    moved = [group | {"params": [p for p in group["params"] if p not in filters]} for group in groups]
    return Muon([*moved, {"params": turned, "turn": settings.turn / settings.lr}], **options)
