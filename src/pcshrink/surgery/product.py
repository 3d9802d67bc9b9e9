"""Images times a factor for each sample and channel, and the mean over space, where autograd's own way is slow.

In channels_last layout torch takes a factor with no width place by place, and narrow maps take several times as long as
they need. The same holds for the gradient of a mean, which is added to another one.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcshrink.surgery.maps import FEW, is_channels_last, over_space, sum_over, sums_of_product


def is_slow(x: Tensor) -> bool:
    """Whether these are large channels_last images on a CPU, in a pass that is neither compiled nor exported."""
    if torch.compiler.is_compiling():  # asked first, since a comparison would fix the size of the batch
        return False
    return x.ndim == 4 and x.numel() >= FEW and x.is_cpu and is_channels_last(x)


def times(x: Tensor, factor: Tensor) -> Tensor:
    """Images or other maps x (B, C, ...) times a factor (B, C) or (1, C), in the type of x."""
    if not is_slow(x):
        return x * factor.to(x.dtype).reshape(*factor.shape, *[1] * (x.ndim - 2))
    if torch.is_grad_enabled() and factor.requires_grad and len(factor) == len(x):
        product: Tensor = _Product.apply(x, factor)
        return product
    return x * over_space(factor, x)


def mean_over_space(x: Tensor) -> Tensor:
    """The mean of each channel (B, C) of images, in float32 or wider."""
    if torch.is_grad_enabled() and x.requires_grad and is_slow(x):
        mean: Tensor = _Mean.apply(x)
        return mean
    return _mean(x)


def _mean(x: Tensor) -> Tensor:
    # Not mean(): its backward writes out a whole tensor, where that of a sum is a view.
    return sum_over(x, [2, 3]) * (1 / math.prod(x.shape[2:]))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor)
        return x * over_space(factor, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor]:
        x, factor = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad_x = grad * over_space(factor, grad) if ctx.needs_input_grad[0] else None
        return grad_x, sums_of_product(grad, x).to(factor.dtype)


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.images = torch.empty_like(x, device="meta")  # their shape, type and layout
        return _mean(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        share = grad * (1 / math.prod(ctx.images.shape[2:]))
        return over_space(share, ctx.images).expand(ctx.images.shape)
