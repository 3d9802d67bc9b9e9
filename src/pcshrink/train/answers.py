"""Labels for images without any: what the network answers before it shrinks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pcshrink.common.files import write_text
from pcshrink.data import EvalSource, ImageData
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.train.together import from_first

FILE = "answers.json"


def answered(data: ImageData, folder: Path, fabric: object, teacher: Callable[[], nn.Module]) -> ImageData:
    """Give images without labels those of a network; labelled data stay as they are.

    Args:
        data: Any data.
        folder: The run's folder, where the answers are kept: a resumed run asks no second time.
        fabric: The first process asks for all.
        teacher: Makes the network to be asked.

    Raises:
        ConfigError: The network is no classifier.
    """
    if data.unlabelled is None:
        return data
    images, path = data.unlabelled.images, folder / FILE

    def ask() -> dict[str, Any]:
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if len(known.get("labels", ())) != images.num_samples:
            labels, outputs = ask_network(teacher(), images)
            known = {"outputs": outputs, "labels": labels}
            write_text(path, json.dumps(known))
        return known

    answers = from_first(fabric, ask)
    return data.unlabelled.answered(answers["labels"], int(answers["outputs"]))


def kept_answers(data: ImageData, folder: Path) -> ImageData:
    """Give images without labels the answers that a finished run kept; labelled data stay as they are.

    Raises:
        CheckpointError: There are none, or they are those of other images.
    """
    if data.unlabelled is None:
        return data
    path, count = folder / FILE, data.unlabelled.images.num_samples
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    if known is None or len(known["labels"]) != count:
        state = "is missing" if known is None else f"holds {len(known['labels'])} answers"
        message = f"{path} {state}, but the {count} images have no labels of their own to compare with"
        raise CheckpointError(message)
    return data.unlabelled.answered(known["labels"], int(known["outputs"]))


@torch.no_grad()
def ask_network(model: nn.Module, images: EvalSource) -> tuple[list[int], int]:
    """What a network says to every image, and how many classes it knows.

    Raises:
        ConfigError: It gives no scores of classes.
    """
    model.eval()
    device, dtype = next((p.device, p.dtype) for p in model.parameters() if p.is_floating_point())
    labels: list[int] = []
    outputs = 0
    for batch, _ in images.batches():
        scores = model(batch.to(device, dtype))
        if not isinstance(scores, torch.Tensor) or scores.ndim != 2 or scores.shape[1] < 2:
            got = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
            message = f"only a classifier can label images: scores (batch, classes) were expected, got {got}"
            raise ConfigError(message)
        outputs = scores.shape[1]
        labels += scores.argmax(dim=1).tolist()
    return labels, outputs
