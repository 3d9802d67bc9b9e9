"""The training pass of a generator, and its gradients by hand.

Its tensors are so small that the number of operations counts, and there is a generator for every layer. Done here with
as few as possible: the last layer once instead of twice, and no node of autograd's between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pcshrink.methods.pcs.rules import SLOPE

Gradients = tuple[Tensor | None, ...]


class Generate(torch.autograd.Function):
    """Pooled input (B, C_in) -> salience (B, C) and what a penalty takes hold of (B, C)."""

    @staticmethod
    def forward(ctx: Any, norm: nn.BatchNorm1d, pooled: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        """As ``generated``."""
        ctx.set_materialize_grads(False)
        ctx.eps = norm.eps
        salience, handle, *kept = generated(norm, pooled, *parameters)
        ctx.save_for_backward(*kept)
        return salience, handle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, pull: Tensor | None) -> Gradients:
        """As ``generator_gradients``."""
        return (None, *generator_gradients(grad, pull, ctx.eps, *ctx.saved_tensors))


def generated(
    norm: nn.BatchNorm1d, pooled: Tensor, first: Tensor, weight: Tensor, bias: Tensor, last: Tensor, last_bias: Tensor
) -> tuple[Tensor, ...]:
    """FC, BatchNorm, ReLU, FC; then the hard sigmoid, and the same without a bound above for a penalty.

    Returns:
        Both, and then what ``generator_gradients`` needs.
    """
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    momentum = float(norm.momentum)  # type: ignore[arg-type]
    with _full_precision(pooled.device.type):
        before = F.linear(pooled, first)
        hidden, mean, invstd = torch.native_batch_norm(
            before, weight, bias, norm.running_mean, norm.running_var, True, momentum, norm.eps
        )
        z = F.linear(hidden.relu_(), last, last_bias)
    handle = torch.rsub(z, 0.5, alpha=-SLOPE).relu_()
    return F.hardsigmoid(z), handle, pooled, first, weight, last, before, mean, invstd, hidden, z, handle


def generator_gradients(grad: Tensor | None, pull: Tensor | None, eps: float, *kept: Tensor) -> Gradients:
    """Of the pooled input and of all parameters. The pull of a penalty moves the last layer alone."""
    pooled, first, weight, last, before, mean, invstd, hidden, z, handle = kept
    grad_z = torch.zeros_like(z) if grad is None else torch.ops.aten.hardsigmoid_backward(grad, z)
    both = grad_z
    if pull is not None:
        both = torch.add(grad_z, torch.ops.aten.threshold_backward(pull, handle, 0), alpha=SLOPE)
    with _full_precision(z.device.type):
        grad_hidden = torch.ops.aten.threshold_backward(grad_z.mm(last), hidden, 0)
        grad_before, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            grad_hidden, before, weight, None, None, mean, invstd, True, eps, [True, True, True]
        )
        grad_first, grad_last = grad_before.t().mm(pooled), both.t().mm(hidden)
        return grad_before.mm(first), grad_first, grad_weight, grad_bias, grad_last, both.sum(dim=0)


def can_generate(first: nn.Linear, norm: nn.Module | None, last: nn.Linear, pooled: Tensor) -> bool:
    """Whether this is a plain training pass of plain layers, all of which learn."""
    return (
        type(norm) is nn.BatchNorm1d
        and norm.training
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and pooled.ndim == 2
        and len(pooled) > 1
        and isinstance(norm.momentum, float)
        and type(first) is type(last) is nn.Linear
        and all(
            p.requires_grad and p.dtype == pooled.dtype
            for p in (first.weight, norm.weight, norm.bias, last.weight, last.bias)
        )
    )


@contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """No autocast. Entering ``torch.autocast`` takes as long as three operations here."""
    if not torch.is_autocast_enabled(device):
        yield
        return
    torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, True)
