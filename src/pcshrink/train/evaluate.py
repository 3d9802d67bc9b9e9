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
        images: How many images these are.
        by_class: The error on the images of each class, if it was asked for; None for a class without images.
    """

    error: float
    loss: float
    images: int = 0
    by_class: tuple[float | None, ...] = ()

    def figures(self) -> dict[str, Any]:
        """For a result's file."""
        found = {"error": self.error, "loss": self.loss, "images": self.images}
        return found | ({"error_by_class": list(self.by_class)} if self.by_class else {})


@torch.no_grad()
def evaluate(
    model: nn.Module,
    source: EvalSource,
    fabric: Any = None,
    check: Callable[[], None] | None = None,
    *,
    full_precision: bool = False,
    classes: int = 0,
) -> Score:
    """Run the model over all evaluation images; its mode is put back afterwards.

    Args:
        model: Any classifier.
        source: The images.
        fabric: Adds up the parts of several processes, and gives the precision.
        check: Called before each batch; may raise to stop.
        full_precision: In the precision of the weights, whatever the fabric trains in; so the figures of a finished
            network are those that anyone who loads it will find.
        classes: Also count the errors of so many classes one by one.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    device, dtype = next((p.device, p.dtype) for p in model.parameters() if p.is_floating_point())
    sums = torch.zeros(3 + 2 * classes, dtype=torch.float64, device=device)
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
            wrong = scores.argmax(dim=-1) != labels
            loss = F.cross_entropy(scores, labels, reduction="sum").double()
            sums[:3] += torch.stack([wrong.sum().double(), loss, torch.full_like(loss, len(labels))])
            if classes:
                sums[3:] += torch.cat([torch.bincount(part, minlength=classes) for part in (labels[wrong], labels)])
    finally:
        for module, mode in modes:
            module.training = mode
    if fabric is not None and fabric.world_size > 1:
        sums = fabric.all_reduce(sums, reduce_op="sum")
    total, loss_, count, *each = sums.tolist()
    shares = tuple(100 * w / n if n else None for w, n in zip(each[:classes], each[classes:], strict=True))
    return Score(100 * total / max(count, 1), loss_ / max(count, 1), round(count), shares)
