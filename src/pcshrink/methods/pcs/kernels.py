"""The two places where autograd's own way is too slow or keeps too much: gated norms and pooled inputs.

The plain product of norm and salience keeps the norm's output alive for the backward pass, half as much memory again as
training without gates. ``GatedBatchNorm`` computes it again from the norm's input, which BatchNorm keeps anyway.

Autograd adds the gradient of the pooled branch, constant over space, to that of the layer. With channels last its own
way of doing so takes longer than the layer's convolution; ``Tap`` does it by one broadcast addition.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pcshrink.methods.pcs.passes import (
    FEW,
    combine,
    gated_norm,
    is_channels_last,
    moments,
    moments_pay,
    over_space,
    sums_over_space,
)
from pcshrink.methods.pooling import pool

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class GatedBatchNorm(torch.autograd.Function):
    """``batch_norm(x) * salience`` with batch statistics, for x (B, C, ...) and salience (B, C)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, salience: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d, momentum: float
    ) -> Tensor:
        """Normalise with the batch's statistics, update the running ones, and scale, all in one pass over x."""
        if not moments_pay(x):
            out, mean, invstd = torch.native_batch_norm(
                x, weight, bias, norm.running_mean, norm.running_var, True, momentum, norm.eps
            )
            ctx.save_for_backward(x, salience, weight, bias, mean, invstd)
            scaled: Tensor = out.mul_(over_space(salience, out))
            return scaled
        mean, var = moments(x)
        update_running(norm, mean, var, x.numel() // x.shape[1], momentum)
        invstd = (var + norm.eps).rsqrt_()
        ctx.save_for_backward(x, salience, weight, bias, mean, invstd)
        return gated_norm(x, salience, weight, bias, mean, var, norm.eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Everything follows from the sums of grad and of grad * x over space, both (B, C).

        The gradient of x is that of a batch norm whose own incoming gradient is grad * salience,

            weight / std * (grad * salience - mean of it - (x - mean) / var * mean of (it * (x - mean)))

        which is grad times one factor for each sample and channel, plus the normalised x times one for each channel,
        plus a constant.
        """
        x, salience, weight, bias, mean, invstd = ctx.saved_tensors
        grad = grad.contiguous(memory_format=_format(x))
        sums = sums_over_space(grad, x)
        with_x, alone = sums.unbind()
        scale = weight * invstd
        grad_salience = (with_x * scale).addcmul_(alone, torch.addcmul(bias, mean, scale, value=-1))
        pulls = (sums * salience).sum(dim=1)
        grad_weight, grad_bias = pulls.unbind()
        grad_weight.addcmul_(mean, grad_bias, value=-1).mul_(invstd)
        slope, shift = (pulls * scale).mul_(-x.shape[1] / x.numel()).unbind()
        grad_x = combine(grad, salience * scale, x, slope, shift, mean, invstd.pow(-2))
        return grad_x, grad_salience.to(salience.dtype), grad_weight, grad_bias, None, None


def update_running(norm: nn.BatchNorm2d, mean: Tensor, var: Tensor, count: int, momentum: float) -> None:
    """Take the batch into the norm's running statistics, the variance without bias as BatchNorm does."""
    if norm.running_mean is not None and norm.running_var is not None:
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
        norm.running_var.lerp_((var * (count / (count - 1))).to(norm.running_var.dtype), momentum)


def _format(x: Tensor) -> torch.memory_format:
    return torch.channels_last if is_channels_last(x) else torch.contiguous_format


def can_fuse(norm: nn.Module, x: Tensor) -> bool:
    """Whether this pass of a norm is one that the fused step computes: plain training in eager mode."""
    return (
        type(norm) in NORMS  # one that shares its statistics between processes does its own work
        and norm.training
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and isinstance(norm.momentum, float)
        and isinstance(norm.running_mean, Tensor)
        and isinstance(norm.weight, Tensor)
        and (x.dtype == norm.weight.dtype or (x.dtype == torch.bfloat16 and norm.weight.dtype == torch.float32))
        and x.ndim >= 2
        and x.numel() > x.shape[1]
    )


def gated_batch_norm(norm: nn.BatchNorm2d, x: Tensor, salience: Tensor) -> Tensor:
    """The training pass of ``norm`` times the salience."""
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    x = x.contiguous(memory_format=_format(x))
    out: Tensor = GatedBatchNorm.apply(x, salience, norm.weight, norm.bias, norm, norm.momentum)
    return out


class Tap(torch.autograd.Function):
    """``x -> (x, pooled x)`` for images (B, C, H, W)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Pool; x itself goes on untouched."""
        ctx.places = math.prod(x.shape[2:])
        return x.view_as(x), pool(x, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_pooled: Tensor) -> Tensor:
        """Every place of a channel gets the same share of the pooled gradient."""
        return torch.add(grad, over_space(grad_pooled, grad), alpha=1 / ctx.places)


def can_tap(module: torch.nn.Module, x: Tensor, axis: int) -> bool:
    """Whether this is a training pass over images in channels_last layout, through a layer that leaves x alone."""
    return (
        x.ndim == 4
        and axis == 1
        and isinstance(module, torch.nn.Conv2d)
        and x.requires_grad
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and x.numel() >= FEW  # below it costs more to ask than to add
        and is_channels_last(x)
    )
