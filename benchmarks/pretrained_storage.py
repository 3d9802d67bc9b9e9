"""Why the dense network errs more on stored images than on originals: other crops, other sizes, stored once more."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from pcshrink.models import create
from pcshrink.pretrained.paired import Paired
from pcshrink.train.weights import load_weights_

MODEL = "torchvision:mobilenet_v2"
EVERY = 4  # of four images one: a look of a few minutes
BATCH = 50
QUALITY, HALF_COLOURS = 80, 2  # as the images were stored

Change = Callable[[Image.Image], Any]


def stored(image: Image.Image, quality: int, subsampling: int) -> Image.Image:
    """The image after another round through a JPEG file."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, subsampling=subsampling)
    return Image.open(file).convert("RGB")


def crop_of(resize: int, size: int = 224) -> Change:
    return v2.Compose([v2.Resize(resize), v2.CenterCrop(size)])


USUAL = crop_of(256)
CHANGES: dict[str, Change] = {
    "as usual: shorter side 256, centre of 224": USUAL,
    # Cropped first: on the grid of the first round a second one would change next to nothing.
    "stored once more as JPEG of quality 80": lambda image: stored(USUAL(image), QUALITY, HALF_COLOURS),
    "stored once more as JPEG of quality 95, colours whole": lambda image: stored(USUAL(image), 95, 0),
    "shorter side 232": crop_of(232),
    "shorter side 224": crop_of(224),
    "shorter side 288": crop_of(288),
    "whole image stretched to 224": v2.Resize((224, 224)),
    "upper left corner of 224": lambda image: v2.Resize(256)(image).crop((0, 0, 224, 224)),
    "centre of 256": crop_of(256, 256),
}
READY = v2.Compose([
    v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])  # fmt: skip


@torch.no_grad()
def examine(val: Path, weights: Path) -> str:
    """A table of errors, each beside the usual one; torchvision's transforms alone, none of pcshrink's."""
    model = create(MODEL)
    load_weights_(model, weights)
    model.eval().to(memory_format=torch.channels_last)
    paths = sorted(path for path in val.rglob("*") if path.is_file())[::EVERY]
    wrong: dict[str, list[Tensor]] = {name: [] for name in CHANGES}
    for start in range(0, len(paths), BATCH):
        part = paths[start : start + BATCH]
        images, labels = [Image.open(path).convert("RGB") for path in part], [int(path.parent.name) for path in part]
        for name, change in CHANGES.items():
            batch = torch.stack([READY(change(image)) for image in images])
            with torch.autocast("cpu", torch.bfloat16):
                said = model(batch.contiguous(memory_format=torch.channels_last)).argmax(dim=1)
            wrong[name].append(said != torch.tensor(labels))
    return _table({name: torch.cat(parts) for name, parts in wrong.items()})


def _table(wrong: dict[str, Tensor]) -> str:
    usual = next(iter(wrong.values()))
    lines = ["| images | error | difference, 95 % interval |", "|---|---|---|"]
    for name, bad in wrong.items():
        changed = int((bad & ~usual).sum()), int((usual & ~bad).sum())
        paired = Paired.of_counts(len(bad), (int(usual.sum()), int(bad.sum())), changed, int((usual == bad).sum()))
        gap = "" if bad is usual else f"{paired.difference:+.2f} ({paired.low:+.2f} to {paired.high:+.2f})"
        lines.append(f"| {name} | {paired.second_error:.2f} % | {gap} |")
    return "\n".join(lines)
