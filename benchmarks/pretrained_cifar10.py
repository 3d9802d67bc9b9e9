"""The same network on CIFAR-10 at 64 pixels: fine-tuned, then shrunk to half by ``pcshrink shrink``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file

from pcshrink.data import load_dataset
from pcshrink.models import create

MODEL = "torchvision:mobilenet_v2"
RECIPE = Path(__file__).parent / "pretrained_files" / "cifar10-64.yaml"
BUDGETS = ("madds=0.5", "latency=0.5")
SIZE = ("data.image_size=64", "data.resize_size=64")
# 50,000 labelled images say more than 800 without labels: one epoch chooses, the others let the network settle.
SETTINGS = (
    *SIZE,
    "data.least_crop=0.5",
    "data.workers=0",
    "data.batch_size=128",
    "epochs.settle=5",
    "optimizer.lr=1e-3",
)


def finetune(cifar: Path, weights: Path, runs: Path) -> None:
    """Train the dense network, from the ImageNet weights with a new classifier."""
    runs.mkdir(parents=True, exist_ok=True)
    images, start = runs / "cifar10-images", runs / "cifar10-start.safetensors"
    write_images(cifar, images)
    if not start.is_file():
        torch.manual_seed(0)
        fresh = create(MODEL, num_classes=10).state_dict()
        known = torch.load(weights, weights_only=True, map_location="cpu")
        kept = {n: known[n] if n in known and known[n].shape == t.shape else t for n, t in fresh.items()}
        save_file({name: tensor.contiguous() for name, tensor in kept.items()}, start)
    dense = runs / "cifar10-dense"
    words = [str(RECIPE), *into(dense)]
    for setting in (f"data.root={images}", f"model.weights={start}"):
        words += ["--set", setting]
    subprocess.run([sys.executable, "-m", "pcshrink", "train", *words], check=True)


def into(folder: Path) -> list[str]:
    """Write into a folder; go on with what is there."""
    return ["--out", str(folder), *(["--resume"] if folder.is_dir() else [])]


def write_images(cifar: Path, folder: Path) -> None:
    """CIFAR-10 as files in folders of classes."""
    if (folder / "done").is_file():
        return
    data = load_dataset("cifar10", cifar)
    for part, source in (("train", data.train), ("val", data.val)):
        for number, (image, label) in enumerate(zip(source.images, source.labels.tolist(), strict=True)):
            place = folder / part / data.classes[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number:05}.png", compress_level=1)
    (folder / "done").touch()


def halve(runs: Path, budget: str | None) -> None:
    for goal in BUDGETS if budget is None else (budget,):
        words = ["shrink", MODEL, "--weights", str(runs / "cifar10-dense" / "model" / "model.safetensors")]
        words += ["--images", str(runs / "cifar10-images"), "--budget", goal, *into(_folder(runs, goal))]
        words += [w for setting in SETTINGS for w in ("--set", setting)]
        subprocess.run([sys.executable, "-m", "pcshrink", *words], check=True)


def _folder(runs: Path, goal: str) -> Path:
    return runs / f"cifar10-{goal.replace('=', '-')}"


def half_table(runs: Path) -> str:
    lines = ["| asked | latency | madds | error dense | error shrunk | difference, 95 % interval |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for goal in BUDGETS:
        kept = _folder(runs, goal) / "shrunk.json"
        if not kept.is_file():
            lines.append(f"| {goal} | not run | | | | |")
            continue
        shrunk = json.loads(kept.read_text())
        paired = shrunk["paired"]
        lines.append(
            f"| {goal} | {shrunk['latency']:.3f} ({shrunk['latency_low']:.3f} to {shrunk['latency_high']:.3f}) | "
            f"{shrunk['madds']:.3f} | {paired['first_error']:.2f} % | {paired['second_error']:.2f} % | "
            f"{paired['difference']:+.2f} ({paired['low']:+.2f} to {paired['high']:+.2f}) |"
        )
    return "\n".join(lines)
