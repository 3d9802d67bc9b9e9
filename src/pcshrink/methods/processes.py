"""Sums and means over all processes of a run, so that each of them chooses alike."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def processes() -> int:
    """How many train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """The same values summed over all processes, in place."""
    if processes() > 1:
        dist.all_reduce(values)
    return values


def mean_over_processes(values: Tensor) -> Tensor:
    """Their mean over all processes, in place."""
    return sum_over_processes(values).div_(processes())
