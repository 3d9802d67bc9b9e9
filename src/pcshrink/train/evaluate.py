"""Error and loss of a model on the evaluation images, over all processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from pcshrink.data import EvalSource


@dataclass(frozen=True)
class Score:
    """How good a model is.

    Attributes:
        error: Share of the images classified wrongly, in per cent.
        loss: Mean cross entropy.
    """

    error: float
    loss: float


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: EvalSource,
    fabric: Any = None,
    check: Callable[[], None] | None = None,
    *,
    full_precision: bool = False,
) -> Score:
    """Run the model over all evaluation images; its mode is put back afterwards.

    Args:
        model: Any classifier.
        source: The images.
        fabric: Adds up the parts of several processes, and gives the precision.
        check: Called before each batch; may raise to stop.
        full_precision: In the precision of the weights, whatever the fabric trains in; so the figures of a finished
            network are those that anyone who loads it will find.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    device, dtype = next((p.device, p.dtype) for p in model.parameters() if p.is_floating_point())
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    try:
        for images, labels in source.batches():
            if check is not None:
                check()
            images = images.to(dtype)
            if fabric is None or full_precision:
                scores = model(images)
            else:
                with fabric.autocast():
                    scores = model(images)
            scores = scores.float()
            wrong = (scores.argmax(dim=-1) != labels).sum()
            loss = F.cross_entropy(scores, labels, reduction="sum")
            sums += torch.stack([wrong.double(), loss.double(), torch.full_like(loss.double(), len(labels))])
    finally:
        for module, mode in modes:
            module.training = mode
    if fabric is not None and fabric.world_size > 1:
        sums = fabric.all_reduce(sums, reduce_op="sum")
    wrong_, loss_, count = sums.tolist()
    return Score(100 * wrong_ / max(count, 1), loss_ / max(count, 1))
