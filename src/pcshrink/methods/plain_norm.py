"""The training pass of an ordinary batch norm over channels_last images of few, odd channels, faster than torch's own.

torch's kernel for this layout works on the channels of one place at a time. Where they do not fill the processor's
vectors, sums over rows of many places are several times faster, and networks that were cut have such widths.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pcshrink.methods.passes import (
    as_rows,
    like,
    moments,
    normalise,
    odd_channels,
    update_running,
)
from pcshrink.surgery.gate import BoundForward


class PlainBatchNorm(torch.autograd.Function):
    """``batch_norm(x)`` with batch statistics, for channels_last images."""

    @staticmethod
    def forward(ctx: Any, norm: nn.BatchNorm2d, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Moments over wide rows, then one pass."""
        mean, var = moments(x)
        update_running(norm, mean, var, x.numel() // x.shape[1])
        ctx.eps = norm.eps
        ctx.save_for_backward(x, weight, mean, var)
        return normalise(x, weight, bias, mean, var, norm.eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """As if the moments were constants, over rows of many places; then what the moments add."""
        x, weight, mean, var = ctx.saved_tensors
        return None, *_gradients(grad.contiguous(memory_format=torch.channels_last), x, weight, mean, var, ctx.eps)


def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Of x, weight and bias."""
    together, channels = as_rows(x).shape[1] // x.shape[1], x.shape[1]
    wide_weight, wide_mean, wide_var = torch.cat([torch.stack((weight, mean, var))] * together, dim=1).unbind()
    rows, *sums = torch.ops.aten.native_batch_norm_backward(
        as_rows(grad), as_rows(x), wide_weight, wide_mean, wide_var, None, None, False, eps, [True, True, True]
    )
    grad_weight, grad_bias = own = torch.stack(sums).view(2, together, channels).sum(dim=1)
    scale = (var + eps).rsqrt_().mul_(weight)
    slope, shift = (own * scale).mul_(-channels / x.numel()).unbind()
    return like(rows, x).add_(normalise(x, slope, shift, mean, var, eps)), grad_weight, grad_bias


def hasten_norms_(model: nn.Module) -> None:
    """Let the model's ordinary batch norms take the faster way where there is one; all else about them stays."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d and "forward" not in vars(module):
            module.forward = BoundForward(module, _forward)  # type: ignore[method-assign]


def _forward(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    if not _can_hasten(norm, x):
        return type(norm).forward(norm, x)
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    out: Tensor = PlainBatchNorm.apply(norm, x, norm.weight, norm.bias)
    return out


def _can_hasten(norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Whether this is a plain training pass on a CPU that gains by it."""
    return (
        type(norm) is nn.BatchNorm2d  # one that shares its statistics between processes does its own work
        and norm.training
        and x.device.type == "cpu"
        and odd_channels(x)
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and isinstance(norm.momentum, float)
        and isinstance(norm.running_mean, Tensor)
        and isinstance(norm.weight, Tensor)
        and (x.dtype == norm.weight.dtype or (x.dtype == torch.bfloat16 and norm.weight.dtype == torch.float32))
    )
