"""The shrinking loss R: the salience of the selected channels, averaged over the batch."""

from __future__ import annotations

from torch import Tensor


def shrinking_loss(salience: Tensor, selected: Tensor) -> Tensor:
    """R = sum of the selected entries, mean over the batch.

    Args:
        salience: (B, C).
        selected: Selection (or weights) of shape (C,), the same for all inputs, or (B, C), one for each input.
    """
    return (salience * selected.to(salience.dtype)).sum(dim=-1).mean()
