"""Error and loss of a model on the evaluation images, over all processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.data import EvalSource, ImageData
from pcshrink.errors import DataError
from pcshrink.graph.model import evaluation


@dataclass(frozen=True)
class Score:
    """How good a model is.

    Attributes:
        error: Share of the images classified wrongly, in per cent.
        loss: Mean cross entropy.
        images: How many images these are.
        by_class: The error on the images of each class, if it was asked for; None for a class without images.
        error_top5: Share of the images whose class is not among the five likeliest, where there are more classes.
    """

    error: float
    loss: float
    images: int = 0
    by_class: tuple[float | None, ...] = ()
    error_top5: float | None = None

    def figures(self) -> dict[str, Any]:
        """For a result's file."""
        figures: dict[str, Any] = {"error": self.error, "loss": self.loss, "images": self.images}
        if self.error_top5 is not None:
            figures["error_top5"] = self.error_top5
        return figures | ({"error_by_class": list(self.by_class)} if self.by_class else {})


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
    sums, outputs = torch.zeros(4 + 2 * classes, dtype=torch.float64, device=device), 0
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
            outputs = scores.shape[-1]
            missed = (scores.topk(min(5, outputs), dim=-1).indices != labels[:, None]).all(dim=-1)
            number = torch.full_like(loss, len(labels))
            sums[:4] += torch.stack([wrong.sum().double(), missed.sum().double(), loss, number])
            if classes:
                sums[4:] += torch.cat([torch.bincount(part, minlength=classes) for part in (labels[wrong], labels)])
    finally:
        for module, mode in modes:
            module.training = mode
    if fabric is not None and fabric.world_size > 1:
        sums = fabric.all_reduce(sums, reduce_op="sum")
    errors, errors5, loss_, count, *each = sums.tolist()
    seen = max(count, 1)
    shares = tuple(100 * w / n if n else None for w, n in zip(each[:classes], each[classes:], strict=True))
    return Score(100 * errors / seen, loss_ / seen, round(count), shares, 100 * errors5 / seen if outputs > 5 else None)


@torch.no_grad()
def check_fit(model: nn.Module, data: ImageData) -> None:
    """Make sure that a network and a data set belong together, before a figure says they do.

    Args:
        model: Any classifier.
        data: What it is to be trained or evaluated on.

    Raises:
        DataError: The network does not run on such images, or has another number of outputs than there are classes.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    example = torch.zeros(2, *data.input_shape, device=parameter.device, dtype=parameter.dtype)
    try:
        with evaluation(model):
            scores = model(example)
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError) as error:
        shape, reason = " x ".join(map(str, data.input_shape)), " ".join(str(error).split())[:300]
        message = f"the network does not run on the images of {data.name!r} ({shape}): {reason}"
        raise DataError(message) from error
    if not isinstance(scores, Tensor) or scores.ndim != 2:
        what = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        message = f"a classifier gives one row of scores for each image, this network gives {what} for two"
        raise DataError(message)
    if scores.shape[1] != data.num_classes:
        shown = ", ".join(data.classes[:5]) + (", ..." if data.num_classes > 5 else "")
        message = (
            f"the network has {scores.shape[1]} outputs, {data.name!r} has {data.num_classes} classes ({shown}); take "
            "the data it was made for, or, for a folder, a file of all its classes (data.classes, --classes)"
        )
        raise DataError(message)
