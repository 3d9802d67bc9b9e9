"""Weights and norms that do something, so that a wrong cut shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.graph.model import run


def settle_(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Build a net with norms that do something, so that a wrong cut shows; zeroed weights stay zero."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
        randomise_(model)
    return model


@torch.no_grad()
def randomise_(model: nn.Module) -> nn.Module:
    """Give norms and biases values that a trained network would have."""
    for module in model.modules():
        if isinstance(getattr(module, "running_mean", None), Tensor):
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 2.0)
        if isinstance(getattr(module, "bias", None), nn.Parameter):
            module.bias.normal_(std=0.3)
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.ndim == 1 and bool(weight.any()):
            weight.uniform_(0.5, 1.5)
    return model


@torch.no_grad()
def settle_norms_(model: nn.Module, example: Any) -> nn.Module:
    """The same for a deep network: no constant is left, and norms fit what reaches them, as after training."""
    randomise_(model)
    for parameter in model.parameters():
        if parameter.numel() > 1 and bool(parameter.min() == parameter.max()):  # zero heads, layer scales of 1e-6
            parameter.uniform_(-0.5, 0.5) if parameter.ndim < 2 else nn.init.normal_(parameter, std=0.05)
    norms = [m for m in model.modules() if isinstance(getattr(m, "running_mean", None), Tensor)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
    model.train()
    run(model, example)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.running_mean.add_(torch.randn_like(norm.running_mean) * norm.running_var.sqrt() * 0.3)
        norm.running_var.mul_(torch.rand_like(norm.running_var) * 1.5 + 0.5)
    return model.eval()
