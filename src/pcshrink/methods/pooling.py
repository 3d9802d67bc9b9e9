"""The mean over everything but batch and channels, which gates read off a layer's input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcshrink.surgery.maps import sum_over
from pcshrink.surgery.product import mean_over_space


def pool(x: Tensor, axis: int) -> Tensor:
    """Mean over everything but the batch and the channels: (B, ..., C, ...) -> (B, C)."""
    dims = [d for d in range(1, x.ndim) if d != axis % x.ndim]
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    if not dims:
        return x.to(wide)
    if x.ndim == 4 and axis == 1:
        return mean_over_space(x)
    places = math.prod([x.shape[d] for d in dims])  # the batch may be empty: a detector without boxes
    return sum_over(x, dims) * (1 / places)
