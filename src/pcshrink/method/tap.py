"""Pooling that hands its input on, so that the gradient comes back in one piece.

Autograd adds the gradient of the pooled branch, constant over space, to that of the layer. With channels last its own
way of doing so takes longer than the layer's convolution; one broadcast addition does not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcshrink.method.salience import pool


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
