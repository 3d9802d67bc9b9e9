"""The training pass of a generator as one step of autograd.

Its tensors are so small that the number of operations counts, and there is a generator for every layer. Done here with
as few as possible: the last layer once instead of twice, and no node of autograd's between them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pcshrink.methods.pcs.rules import SLOPE


class Generate(torch.autograd.Function):
    """Pooled input (B, C_in) -> salience (B, C) and what a penalty takes hold of (B, C).

    As ``SalienceGenerator.with_handle`` says, the gradient of the second moves the last layer alone.
    """

    @staticmethod
    def run(first: nn.Linear, norm: nn.BatchNorm1d, last: nn.Linear, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """Both layers with the norm's batch statistics between them."""
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
        made: tuple[Tensor, Tensor] = Generate.apply(
            pooled, first.weight, norm.weight, norm.bias, last.weight, last.bias, norm
        )
        return made

    @staticmethod
    def forward(
        ctx: Any,
        pooled: Tensor,
        first: Tensor,
        weight: Tensor,
        bias: Tensor,
        last: Tensor,
        last_bias: Tensor,
        norm: nn.BatchNorm1d,
    ) -> tuple[Tensor, Tensor]:
        """FC, BatchNorm, ReLU, FC; then the hard sigmoid, and the same without a bound above."""
        ctx.set_materialize_grads(False)
        ctx.eps = norm.eps
        before = F.linear(pooled, first)
        hidden, mean, invstd = torch.native_batch_norm(
            before, weight, bias, norm.running_mean, norm.running_var, True, norm.momentum, norm.eps
        )
        hidden.relu_()
        z = F.linear(hidden, last, last_bias)
        handle = torch.rsub(z, 0.5, alpha=-SLOPE).relu_()
        ctx.save_for_backward(pooled, first, weight, last, before, mean, invstd, hidden, z, handle)
        return F.hardsigmoid(z), handle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, pull: Tensor | None) -> tuple[Tensor | None, ...]:
        """The chain rule by hand."""
        pooled, first, weight, last, before, mean, invstd, hidden, z, handle = ctx.saved_tensors
        grad_z = torch.zeros_like(z) if grad is None else torch.ops.aten.hardsigmoid_backward(grad, z)
        both = grad_z
        if pull is not None:
            both = torch.add(grad_z, torch.ops.aten.threshold_backward(pull, handle, 0), alpha=SLOPE)
        with torch.autocast(z.device.type, enabled=False):
            grad_hidden = torch.ops.aten.threshold_backward(grad_z.mm(last), hidden, 0)
            grad_before, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
                grad_hidden, before, weight, None, None, mean, invstd, True, ctx.eps, [True, True, True]
            )
            grad_pooled = grad_before.mm(first) if ctx.needs_input_grad[0] else None
            grad_first, grad_last = grad_before.t().mm(pooled), both.t().mm(hidden)
        return grad_pooled, grad_first, grad_weight, grad_bias, grad_last, both.sum(dim=0), None


def can_generate(first: nn.Linear, norm: nn.Module | None, last: nn.Linear, pooled: Tensor) -> bool:
    """Whether this is a plain training pass of plain layers, all of which learn."""
    return (
        type(norm) is nn.BatchNorm1d
        and norm.training
        and len(pooled) > 1
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and isinstance(norm.momentum, float)
        and pooled.dtype == first.weight.dtype
        and type(first) is type(last) is nn.Linear
        and all(p.requires_grad for p in (first.weight, norm.weight, norm.bias, last.weight, last.bias))
    )
