"""Passes over whole feature maps, each in as few reads, writes and calls as torch's own kernels allow.

x is (B, C, ...), contiguous or (images) channels_last. Every way here was measured on a CPU against the obvious one;
what they have in common is that torch's kernels are fast on long rows and slow on narrow ones:

- contiguous: one sample and channel is a row, so a norm over (1, B * C, space) scales and shifts each by its own;
- channels_last: a row of places with all their channels is long, so several places are taken as one for moments, and
  a factor is repeated over the width first in bfloat16 and where the channels do not fill a vector.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcshrink.methods.maps import FEW, LONG_ROW, is_channels_last, like, normalise, wide_type
from pcshrink.methods.pooling import sum_over

NARROW = {2: 32, 4: 64, 8: 64}  # channels below which BatchNorm's own kernel is slow, by bytes of an element
VECTOR = 64  # bytes that a processor takes at once
PIECE = 1 << 20  # elements that stay in the cache from one operation to the next


def moments_pay(x: Tensor) -> bool:
    """Whether ``moments`` and ``gated_norm`` beat BatchNorm's own kernel and a product."""
    if x.numel() < FEW or x.ndim < 3:
        return False
    return x.shape[1] < NARROW[x.element_size()] if is_channels_last(x) else x[0, 0].numel() >= LONG_ROW


def gated_norm(
    x: Tensor, factor: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    """``normalise(...) * factor`` for factor (B, C)."""
    if is_channels_last(x) and x.dtype != weight.dtype:
        # In two passes, since a shift in bfloat16 would be wrong by the same amount everywhere.
        return normalise(x, weight, bias, mean, var, eps).mul_(over_space(factor, x))
    scale = (var + eps).rsqrt_().mul_(weight)
    shift = torch.addcmul(bias, mean, scale, value=-1)
    if is_channels_last(x):
        return torch.addcmul(over_space(shift * factor, x), x, over_space(scale * factor, x))
    return _affine(x, scale * factor, shift * factor)


def combine(grad: Tensor, factor: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """``grad * factor + normalise(x, ...)`` for factor (B, C)."""
    return normalise(x, weight, bias, mean, var, 0.0).addcmul_(grad, over_space(factor, x))


def sums_over_space(grad: Tensor, x: Tensor) -> Tensor:
    """The sums of grad * x and of grad over space (2, B, C), in float32 or wider."""
    batch, channels = x.shape[:2]
    space = x.numel() // (batch * channels)
    if x.ndim == 2:
        return torch.stack((grad * x, grad)).to(wide_type(x))
    if is_channels_last(x) or space < LONG_ROW:
        return _sums_in_pieces(grad, x, max(PIECE // (channels * space), 1))
    # The parameter gradients of a group norm with every row its own group, mean 0 and deviation 1 are just these two
    # sums, and its kernel reads the inputs once.
    rows = batch * channels
    one = torch.ones(1, rows, dtype=wide_type(x), device=x.device)
    _, with_x, alone = torch.ops.aten.native_group_norm_backward(
        grad.view(1, rows, space), x.view(1, rows, space), torch.zeros_like(one), one, one[0], 1, rows, space, rows,
        [False, True, True],
    )  # fmt: skip
    return torch.stack((with_x, alone)).view(2, batch, channels)


def _sums_in_pieces(grad: Tensor, x: Tensor, samples: int) -> Tensor:
    """Sums over space of so many samples at a time, so that their products are still in the cache when added up."""
    axes = list(range(2, x.ndim))
    pieces = zip(grad.split(samples), x.split(samples), strict=True) if len(x) > samples else [(grad, x)]
    sums = [torch.stack((sum_over(g * part, axes), sum_over(g, axes))) for g, part in pieces]
    return sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)


def over_space(values: Tensor, maps: Tensor) -> Tensor:
    """Values (B, C) or (1, C) in the shape and type to be added to or multiplied with maps."""
    values = values.to(maps.dtype)
    long_enough = maps.element_size() > 2 and maps.shape[1] * maps.element_size() >= VECTOR
    if long_enough or maps.numel() < FEW or not is_channels_last(maps):
        return values.view(*values.shape, *[1] * (maps.ndim - 2))
    (count, channels), width = values.shape, maps.shape[3]
    repeated = torch.cat([values] * width, dim=1)  # the fastest way by far: ``repeat`` takes twice as long
    return repeated.as_strided((count, channels, 1, width), (channels * width, 1, channels * width, channels))


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """``x * scale + shift`` for scale and shift (B, C) and contiguous x."""
    if x.ndim == 2:
        return torch.addcmul(shift, x.to(scale.dtype), scale).to(x.dtype)
    rows = x.reshape(1, -1, *x.shape[2:])
    scale, shift = scale.reshape(-1), shift.reshape(-1)
    return like(normalise(rows, scale, shift, torch.zeros_like(scale), torch.ones_like(scale), 0.0), x)
