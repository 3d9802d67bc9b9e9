"""How a pretrained network wants its images, where the file of its weights tells more than its name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pcshrink.models.registry import resolve


def inputs_of_file(spec: str, weights: Path | None) -> dict[str, Any]:
    """Settings of the data that fit weights which torchvision publishes under the file's name; else none.

    torchvision has several weights for many networks, made for images that were resized differently, and the name of
    a network stands for the newest.

    Args:
        spec: The network's name.
        weights: The file.
    """
    source, name = resolve(spec)
    if source != "torchvision" or weights is None:
        return {}
    for known in importlib.import_module("torchvision.models").get_model_weights(name):
        steps = known.transforms()
        if known.url.endswith(f"/{weights.name}") and hasattr(steps, "crop_size"):
            return {"image_size": steps.crop_size[0], "resize_size": steps.resize_size[0]}
    return {}
