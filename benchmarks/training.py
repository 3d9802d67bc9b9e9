"""Figures of the trainer, side by side in one run (ResNet-20, 32 x 32, made-up images unless --root is given).

    python -m benchmarks.training [--threads 1] [--rounds 5] [--parts step,run,data]

step: a shrinking step against a dense step, batch 128.          goal: at most 1.15
run:  a whole shrinking run with compaction while training, against a dense run of as many epochs, ending at 43 % of
      the madds.                                                  goal: at most 0.75 in CPU time
data: the share of an epoch spent on data.                        goal: at most 5 %
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import torch
import torch.nn.functional as F

import pcshrink as pcs
from pcshrink.data import DataConfig, ImageData
from pcshrink.data.cifar10.stored import CIFAR10_ARRAYS
from pcshrink.models import create
from pcshrink.train import run as running
from pcshrink.train.recipe.read import check_recipe

BATCH = 128
# Which part of the epochs is push, and more of the ``shrink`` section; the last as in the built-in recipes.
KINDS: dict[str, tuple[int, dict[str, object]]] = {
    "a third is push, gates kept": (3, {"gates": "keep"}),
    "a third is push, gates folded": (3, {"gates": "fold"}),
    "a quarter is push, gates folded at the cut, aligned as shipped": (
        4, {"gates": "fold", "fold_over": 0, "align": {"layer[23].*": 16, "*": 8}},
    ),
}  # fmt: skip


def made_up(images: int) -> tuple[torch.Tensor, ...]:
    """Pictures with a class that can be seen: noise with a brighter patch at one of ten places."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (images,), generator=generator)
    pictures = torch.randint(0, 120, (images, 3, 32, 32), generator=generator, dtype=torch.uint8)
    for index, label in enumerate(labels.tolist()):
        row, column = 4 + 12 * (label // 5), 1 + 6 * (label % 5)
        pictures[index, :, row : row + 6, column : column + 5] += 100
    return pictures, labels


def open_made_up(images: int) -> ImageData:
    pictures, labels = made_up(images + 500)
    arrays = (pictures[:images], labels[:images], pictures[images:], labels[images:])
    return CIFAR10_ARRAYS.open(arrays, DataConfig(batch_size=BATCH))


def bench_step(rounds: int) -> None:
    images, labels = next(open_made_up(256).train.batches(0))
    nets = {}
    for kind in ("dense", "shrinking"):
        torch.manual_seed(0)
        net = create("resnet20")
        shrinker = pcs.attach_(net, images[:2]) if kind == "shrinking" else None
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        nets[kind] = (net.train(), shrinker, optimizer)
    times: dict[str, list[float]] = {kind: [] for kind in nets}
    for turn in range(rounds + 1):
        for kind, (net, shrinker, optimizer) in nets.items():
            began = time.perf_counter()
            loss = F.cross_entropy(net(images), labels)
            if shrinker is not None:
                loss = loss + shrinker.penalty()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if shrinker is not None:
                shrinker.step()
            if turn:
                times[kind].append(time.perf_counter() - began)
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    print(f"step: dense {1e3 * medians['dense']:.1f} ms, shrinking {1e3 * medians['shrinking']:.1f} ms, "
          f"ratio {medians['shrinking'] / medians['dense']:.3f} (goal 1.15)", flush=True)  # fmt: skip


def bench_data(epochs: int, images: int) -> None:
    data = open_made_up(images)
    began = time.perf_counter()
    for epoch in range(epochs):
        for _ in data.train.batches(epoch):
            pass
    feeding = (time.perf_counter() - began) / epochs
    net, total = create("resnet20").train(), 0.0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    batches = 0
    for inputs, labels in data.train.batches(0):
        began = time.perf_counter()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        total += time.perf_counter() - began
        batches += 1
    share = feeding / (feeding + total)
    print(f"data: {1e3 * feeding / batches:.2f} ms of {1e3 * (feeding + total) / batches:.1f} ms a batch, "
          f"{100 * share:.2f} % of an epoch (goal 5 %)", flush=True)  # fmt: skip


def bench_runs(
    images: int, epochs: int, kinds: Collection[str] = tuple(KINDS), rounds: int = 3
) -> dict[str, tuple[float, float]]:
    """Turns epoch by epoch would be fairer still; the runs follow each other, a dense one before and after each round.

    Returns:
        CPU time of each kind of shrinking run over that of a dense one, the median over the rounds, and the same of
        their epochs alone, by the wall clock: what a run does once, such as proving and saving, weighs in a run of a
        minute and not in one of hours.
    """
    running.open_data = lambda recipe, fabric: open_made_up(images)  # type: ignore[assignment]
    base = {"model": {"name": "resnet20"}, "data": {"name": "cifar10", "root": "unused", "batch_size": BATCH},
            "optimizer": {"lr": 0.1}, "train": {"channels_last": True}, "output": {"latency": False}}  # fmt: skip
    recipes: list[tuple[str, dict[str, object]]] = [("dense", {"epochs": {"dense": epochs}})]
    for kind in kinds:
        parts, how = KINDS[kind]
        push, shrink = epochs // parts, {"budget": {"madds": 0.43, "convention": "paper"}, "compact_every": 1, **how}
        recipes.append((kind, {"epochs": {"shrink": push, "settle": epochs - push}, "shrink": shrink}))
    dense = _seconds_of_run(*recipes[0], base)
    ratios: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        taken = {kind: _seconds_of_run(kind, own, base) for kind, own in recipes[1:]}
        before, dense = dense, _seconds_of_run(*recipes[0], base)
        whole, alone = (statistics.mean(pair) for pair in zip(before, dense, strict=True))
        for kind, (seconds, in_epochs) in taken.items():
            ratios[kind].append((seconds / whole, in_epochs / alone))
    return {kind: (_median(r for r, _ in found), _median(r for _, r in found)) for kind, found in ratios.items()}


def _seconds_of_run(kind: str, own: dict[str, object], base: dict[str, object]) -> tuple[float, float]:
    """CPU time of a run, and what its epochs took by the wall clock."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = running.train(check_recipe(base | own), Path(folder) / "run", quiet=True)
        taken = time.process_time() - began
        rows = (result.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    error, madds = result.compact["error"], result.compact["paper_madds"] / 1e6
    print(f"run: {kind}: {taken:.1f} s of CPU time, error {error:.2f} %, madds {madds:.2f} M", flush=True)
    return taken, sum(json.loads(row)["seconds"] for row in rows)


def _median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=2560)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--parts", default="step,data,run")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts = options.parts.split(",")
    if "step" in parts:
        bench_step(options.rounds)
    if "data" in parts:
        bench_data(2, options.images)
    if "run" in parts:
        for kind, (whole, alone) in bench_runs(options.images, options.epochs).items():
            print(f"run: {kind}: {whole:.3f} of a dense one in CPU time (goal 0.75), epochs alone {alone:.3f}")


if __name__ == "__main__":
    main()
