"""Which channels are pushed down: the k lowest, by running salience or by each input's own."""

from __future__ import annotations

import torch
from torch import Tensor


def lowest(salience: Tensor, k: int) -> Tensor:
    """Mark the k lowest entries along the last axis: (..., C) -> bool (..., C)."""
    chosen = torch.zeros_like(salience, dtype=torch.bool)
    if k <= 0:
        return chosen
    index = salience.topk(k, dim=-1, largest=False).indices
    return chosen.scatter(-1, index, True)


def lowest_globally(saliences: list[Tensor], total: int, min_channels: list[int]) -> list[Tensor]:
    """Mark the ``total`` lowest entries over all groups, leaving each group its least number of channels."""
    protected = []
    for salience, least in zip(saliences, min_channels, strict=True):
        safe = torch.zeros_like(salience, dtype=torch.bool)
        protected.append(safe.scatter(-1, salience.topk(min(least, len(salience))).indices, True))
    flat = torch.cat(saliences).masked_fill(torch.cat(protected), float("inf"))
    total = min(total, int((~torch.cat(protected)).sum()))
    return list(lowest(flat, total).split([len(s) for s in saliences]))


def count(ratio: float, channels: int, min_channels: int, align: int = 1) -> int:
    """K: how many of the channels are pushed down, so that what is kept is aligned and never too little."""
    kept = channels - round(ratio * channels)
    if align > 1 and channels >= align:
        kept = max(round(kept / align), 1) * align
    return channels - min(max(kept, min_channels), channels)
