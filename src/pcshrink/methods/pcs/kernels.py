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

from pcshrink.methods.pcs.generating import generated, generator_gradients
from pcshrink.methods.pcs.generator import SalienceGenerator
from pcshrink.methods.pcs.passes import combine, gated_norm, moments_pay
from pcshrink.methods.pooling import pool
from pcshrink.surgery.maps import FEW, is_channels_last, moments, over_space, sums_over_space, update_running

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class GatedBatchNorm(torch.autograd.Function):
    """``batch_norm(x) * salience`` with batch statistics, for x (B, C, ...) and salience (B, C)."""

    @staticmethod
    def forward(ctx: Any, norm: nn.BatchNorm2d, x: Tensor, salience: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """As ``normed``."""
        out, mean, invstd = normed(norm, x, salience, weight, bias)
        ctx.save_for_backward(x, salience, weight, bias, mean, invstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """As ``norm_gradients``."""
        return (None, *norm_gradients(grad, *ctx.saved_tensors))


class GeneratedBatchNorm(torch.autograd.Function):
    """``batch_norm(x) * salience`` with a salience that is generated on the way, and the handle of a penalty."""

    @staticmethod
    def forward(
        ctx: Any,
        norm: nn.BatchNorm2d,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        inner_norm: nn.BatchNorm1d,
        pooled: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """``generated``, then ``normed``."""
        ctx.set_materialize_grads(False)
        ctx.eps = inner_norm.eps
        salience, handle, *kept = generated(inner_norm, pooled, *parameters)
        out, mean, invstd = normed(norm, x, salience, weight, bias)
        ctx.save_for_backward(x, salience, weight, bias, mean, invstd, *kept)
        return out, handle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, pull: Tensor | None) -> tuple[Tensor | None, ...]:
        """Those of the norm, then those of the generator."""
        saved = ctx.saved_tensors
        grad_x = grad_salience = grad_weight = grad_bias = None
        if grad is not None:
            grad_x, grad_salience, grad_weight, grad_bias = norm_gradients(grad, *saved[:6])
        inner = generator_gradients(grad_salience, pull, ctx.eps, *saved[6:])
        return None, grad_x, grad_weight, grad_bias, None, *inner


def normed(
    norm: nn.BatchNorm2d, x: Tensor, salience: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise with the batch's statistics, update the running ones, and scale.

    Returns:
        That, the batch's mean, and one over its deviation.
    """
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    if not moments_pay(x):
        out, mean, invstd = torch.native_batch_norm(
            x, weight, bias, norm.running_mean, norm.running_var, True, float(norm.momentum or 0), norm.eps
        )
        return out.mul_(over_space(salience, out)), mean, invstd
    mean, var = moments(x)
    count = x.numel() // x.shape[1]
    update_running(norm.running_mean, norm.running_var, float(norm.momentum or 0), mean, var, count)
    return gated_norm(x, salience, weight, bias, mean, var, norm.eps), mean, (var + norm.eps).rsqrt_()


def norm_gradients(
    grad: Tensor, x: Tensor, salience: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, invstd: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of x, salience, weight and bias; all follow from the sums of grad and of grad * x over space, both (B, C).

    The gradient of x is that of a batch norm whose own incoming gradient is grad * salience,

        weight / std * (grad * salience - mean of it - (x - mean) / var * mean of (it * (x - mean)))

    which is grad times one factor for each sample and channel, plus the normalised x times one for each channel, plus
    a constant.
    """
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
    return grad_x, grad_salience.to(salience.dtype), grad_weight, grad_bias


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
    x = x.contiguous(memory_format=_format(x))
    out: Tensor = GatedBatchNorm.apply(norm, x, salience, norm.weight, norm.bias)
    return out


def generated_batch_norm(
    norm: nn.BatchNorm2d, x: Tensor, generator: SalienceGenerator, inner: nn.BatchNorm1d, pooled: Tensor
) -> tuple[Tensor, Tensor]:
    """The training pass of ``norm`` times a salience that this generator with its inner norm makes, and its handle."""
    x = x.contiguous(memory_format=_format(x))
    made: tuple[Tensor, Tensor] = GeneratedBatchNorm.apply(
        norm, x, norm.weight, norm.bias, inner, pooled, *generator.learned(inner)
    )
    return made


class Tap(torch.autograd.Function):
    """``x -> (x, pooled x)`` for images (B, C, H, W)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Pool; x itself goes on untouched."""
        ctx.places = math.prod(x.shape[2:])
        return x, pool(x, 1)

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
