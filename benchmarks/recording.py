"""What the record of a run costs: time and size, for ResNet-20 on CIFAR-10.

    python -m benchmarks.recording [--epochs 200] [--rounds 5]

An epoch has 391 steps of 128 images. Its record is written as a run writes it: four numbers for every step, and the
state of all groups at the end. The time is CPU time of one thread, beside that of as many training steps with gates.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F

import pcshrink as pcs
from pcshrink.models import build
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.history import HistoryWriter
from pcshrink.train.history.blocks import FILE
from pcshrink.train.observe import group_states, network_facts

STEPS, BATCH = 391, 128


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def training_step(model: torch.nn.Module, shrinker: pcs.Shrinker) -> Callable[[], object]:
    optimizer = torch.optim.SGD(shrinker.param_groups(weight_decay=5e-4), lr=0.01, momentum=0.9)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        (F.cross_entropy(model(images), labels) + shrinker.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    words = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, example = build("resnet20").train(), torch.randn(2, 3, 32, 32)
    costs = pcs.profile(model, example)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(total_steps=10_000))
    session = SimpleNamespace(shrinker=shrinker, cut=None, mask=None)
    step = cpu_seconds(training_step(model, shrinker), words.rounds)
    with tempfile.TemporaryDirectory() as folder:
        writer = HistoryWriter(Path(folder))
        writer.start({})
        writer.network(network_facts(shrinker.groups, shrinker.refused, costs))

        def epoch() -> None:
            for number in range(STEPS):
                writer.step(1.0 / (number + 1), 0.5, 0.25, 3.0)
            row = {"epoch": 0, "phase": "shrink", "loss": 0.123456, "error": 12.34, "lr": 0.1, "lambda": 0.01, "R": 3.0}
            writer.epoch(EpochRow.from_dict(row), group_states(session))  # type: ignore[arg-type]

        record = cpu_seconds(epoch, words.epochs)
        size = (Path(folder) / FILE).stat().st_size
    print(f"an epoch of training {STEPS * step:.1f} s, its record {1e3 * record:.1f} ms: {record / step / STEPS:.4%}")
    print(f"{words.epochs} epochs: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
