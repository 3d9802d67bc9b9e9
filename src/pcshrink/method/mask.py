"""The static mask: which channels the running salience keeps."""

from __future__ import annotations

import torch
from torch import Tensor


def keep_mask(running: Tensor, threshold: float, min_channels: int = 1, align: int = 1) -> Tensor:
    """The mask 1[s-bar > threshold], with at least ``min_channels`` kept and the number kept rounded up to ``align``.

    In float32 the average of exact zeros stalls near 6e-45 and never is 0, hence the threshold.
    """
    keep = running > threshold
    wanted = max(int(keep.sum()), min(min_channels, len(keep)))
    if align > 1 and len(keep) >= align:
        wanted = min(-(-wanted // align) * align, len(keep))
    if wanted > int(keep.sum()):
        keep = torch.zeros_like(keep).scatter(0, running.topk(wanted).indices, True)
    return keep
