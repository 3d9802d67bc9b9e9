"""Which channels of a group are the k lowest, and how many k is."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


def by_pattern(values: Value | Mapping[str, Value], writers: Iterable[str], otherwise: Value) -> Value:
    """The value of the first pattern that a writer of a group matches; what is no mapping holds for all groups."""
    if not isinstance(values, Mapping):
        return values
    names = list(writers)
    matching = (v for pattern, v in values.items() if any(fnmatch.fnmatchcase(name, pattern) for name in names))
    return next(matching, otherwise)


def in_steps(keep: Tensor, align: int) -> Tensor:
    """Keep so many more that their number is a multiple of ``align``, in groups that are large enough for that."""
    if len(keep) < align:
        return keep
    spared = (~keep).nonzero().flatten()[: -int(keep.sum()) % align]
    return keep.index_fill(0, spared, True)


def lowest(scores: Tensor, k: int) -> Tensor:
    """Mark the k lowest entries along the last axis: (..., C) -> bool (..., C)."""
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    if k <= 0:
        return chosen
    index = scores.topk(k, dim=-1, largest=False).indices
    return chosen.scatter(-1, index, True)


def lowest_globally(scores: list[Tensor], total: int, min_channels: list[int]) -> list[Tensor]:
    """Mark the ``total`` lowest entries over all groups, leaving each group its least number of channels."""
    protected = []
    for part, least in zip(scores, min_channels, strict=True):
        safe = torch.zeros_like(part, dtype=torch.bool)
        protected.append(safe.scatter(-1, part.topk(min(least, len(part))).indices, True))
    flat = torch.cat(scores).masked_fill(torch.cat(protected), float("inf"))
    total = min(total, int((~torch.cat(protected)).sum()))
    return list(lowest(flat, total).split([len(part) for part in scores]))


def count(ratio: float, channels: int, min_channels: int, align: int = 1) -> int:
    """K: how many of the channels may leave, so that what is kept is aligned and never too little."""
    kept = channels - round(ratio * channels)
    if align > 1 and channels >= align:
        kept = max(round(kept / align), 1) * align
    return channels - min(max(kept, min_channels), channels)
