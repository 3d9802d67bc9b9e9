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

from pcshrink.surgery.maps import FEW, LONG_ROW, is_channels_last, like, normalise, over_space

NARROW = {2: 32, 4: 64, 8: 64}  # channels below which BatchNorm's own kernel is slow, by bytes of an element


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


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """``x * scale + shift`` for scale and shift (B, C) and contiguous x."""
    if x.ndim == 2:
        return torch.addcmul(shift, x.to(scale.dtype), scale).to(x.dtype)
    rows = x.reshape(1, -1, *x.shape[2:])
    scale, shift = scale.reshape(-1), shift.reshape(-1)
    return like(normalise(rows, scale, shift, torch.zeros_like(scale), torch.ones_like(scale), 0.0), x)
