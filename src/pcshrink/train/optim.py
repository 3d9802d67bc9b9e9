"""Optimizers by name."""

from __future__ import annotations

import torch
from torch import nn

from pcshrink.shrinker import split_parameters
from pcshrink.train.recipe.schema import OptimizerSection


def make_optimizer(model: nn.Module, settings: OptimizerSection) -> torch.optim.Optimizer:
    """Weight decay on matrices only: biases, norms and other vectors have none."""
    groups = split_parameters(model, settings.weight_decay)
    if settings.name == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas)
    nesterov = settings.nesterov and settings.momentum > 0
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=nesterov)
