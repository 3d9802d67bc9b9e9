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

from pcshrink.methods.pooling import pool, sum_over

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class GatedBatchNorm(torch.autograd.Function):
    """``batch_norm(x) * salience`` with batch statistics, for x (B, C, ...) and salience (B, C)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, salience: Tensor, weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d, momentum: float
    ) -> Tensor:
        """Normalise with the batch's statistics, update the running ones, scale in place."""
        out, mean, invstd = torch.native_batch_norm(
            x, weight, bias, norm.running_mean, norm.running_var, True, momentum, norm.eps
        )
        ctx.save_for_backward(x, salience, weight, bias, mean, invstd)
        scaled: Tensor = out.mul_(_spread(salience, out))
        return scaled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Everything follows from the sums of grad and of grad * x over space, both (B, C).

        The gradient of x is that of a batch norm whose own incoming gradient is grad * salience,

            weight / std * (grad * salience - mean of it - (x - mean) / var * mean of (it * (x - mean)))

        which is grad times one factor for each sample and channel, plus x times one for each channel, plus a constant.
        """
        x, salience, weight, bias, mean, invstd = ctx.saved_tensors
        grad = grad.contiguous(memory_format=_format(x))
        buffer = torch.empty_like(grad)
        with_x, alone = _sums_over_space(grad, x, buffer)
        centred = with_x - mean * alone
        scale = weight * invstd
        grad_salience = (scale * centred + bias * alone).to(salience.dtype)
        grad_bias = (salience * alone).sum(dim=0)
        pull = (salience * centred).sum(dim=0)
        places = x.numel() // x.shape[1]
        slope = -scale * invstd.square() * pull / places
        shift = -scale * grad_bias / places - mean * slope
        grad_x = _per_channel(x, slope, shift).add_(torch.mul(grad, _spread(scale * salience, grad), out=buffer))
        return grad_x, grad_salience, pull * invstd, grad_bias, None, None


def _sums_over_space(grad: Tensor, x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of grad * x and of grad over space, both (B, C)."""
    batch, channels = x.shape[:2]
    if x.ndim == 2:
        return torch.mul(grad, x, out=buffer), grad
    if x.is_contiguous() and x.dtype in (torch.float32, torch.float64):
        # The parameter gradients of a group norm with every row its own group, mean 0 and deviation 1 are just
        # these two sums, and its kernel reads the inputs once.
        rows, space = batch * channels, x[0, 0].numel()
        one = x.new_ones(1, rows)
        _, with_x, alone = torch.ops.aten.native_group_norm_backward(
            grad.view(1, rows, space), x.view(1, rows, space), torch.zeros_like(one), one, None, 1, rows, space, rows,
            [False, True, True],
        )  # fmt: skip
        return with_x.view(batch, channels), alone.view(batch, channels)
    axes = list(range(2, x.ndim))
    return sum_over(torch.mul(grad, x, out=buffer), axes), sum_over(grad, axes)


def _per_channel(x: Tensor, slope: Tensor, shift: Tensor) -> Tensor:
    """``x * slope + shift`` for each channel: the evaluation pass of a norm with mean 0 and variance 1."""
    zero, one = torch.zeros_like(slope), torch.ones_like(slope)
    moved: Tensor = torch.native_batch_norm(x, slope, shift, zero, one, False, 0.0, 0.0)[0]
    return moved


def _spread(salience: Tensor, like: Tensor) -> Tensor:
    return salience.to(like.dtype).reshape(*salience.shape, *[1] * (like.ndim - 2))


def _format(x: Tensor) -> torch.memory_format:
    if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
        return torch.channels_last
    return torch.contiguous_format


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
        share = (grad_pooled / ctx.places).to(grad.dtype)
        if grad.dtype != torch.bfloat16 or not grad.is_contiguous(memory_format=torch.channels_last):
            spread: Tensor = grad + share[:, :, None, None]
            return spread
        # The same as a product with ones: the kernel for broadcast sums of bfloat16 is three times slower.
        rows = grad.permute(0, 2, 3, 1).flatten(1, 2)
        total = torch.baddbmm(rows, rows.new_ones(1, ctx.places, 1).expand(len(rows), -1, -1), share[:, None])
        images: Tensor = total.unflatten(1, grad.shape[2:]).permute(0, 3, 1, 2)
        return images


def can_tap(module: torch.nn.Module, x: Tensor, axis: int) -> bool:
    """Whether this is a training pass over images in channels_last layout, through a layer that leaves x alone."""
    return (
        x.ndim == 4
        and axis == 1
        and isinstance(module, torch.nn.Conv2d)
        and x.requires_grad
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )
