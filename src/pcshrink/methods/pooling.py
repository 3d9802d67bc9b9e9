"""The mean over everything but batch and channels, which gates read off a layer's input."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pool(x: Tensor, axis: int) -> Tensor:
    """Mean over everything but the batch and the channels: (B, ..., C, ...) -> (B, C)."""
    dims = [d for d in range(1, x.ndim) if d != axis % x.ndim]
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    if not dims:
        return x.to(wide)
    # Not mean(): its backward writes out a whole tensor, where that of a sum is a view.
    places = math.prod([x.shape[d] for d in dims])  # the batch may be empty: a detector without boxes
    return sum_over(x, dims) * (1 / places)


def sum_over(x: Tensor, dims: list[int]) -> Tensor:
    """Sum in float32 or wider."""
    if x.dtype == torch.bfloat16:
        # Accumulates in float32 as well, and asking for a float32 result would first copy the whole input.
        return x.sum(dim=dims).float()
    return x.sum(dim=dims, dtype=torch.float32 if x.dtype == torch.float16 else x.dtype)
