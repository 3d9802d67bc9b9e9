"""Cost of the core beside its peers, in one run: attach and compact against Torch-Pruning, and a training step.

    python -m benchmarks.core [--rounds 7] [--threads 1]
    python -m benchmarks.core --against PATH [--starts 3]      # two source trees side by side

Every figure is a ratio of medians of rounds that take turns, since machines are noisy.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import torch_pruning as tp
from torch import nn

import pcshrink as pcs
from benchmarks import against
from benchmarks.performance.rows import Effort
from benchmarks.performance.surgery import measure_surgery
from pcshrink.models import build


def take_turns(rounds: int, *contestants: Callable[[], object]) -> list[float]:
    """The median time of each contestant in milliseconds, after one warm-up each."""
    for contestant in contestants:
        contestant()
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for record, contestant in zip(times, contestants, strict=True):
            start = time.perf_counter()
            contestant()
            record.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(record) for record in times]


def training_step(rounds: int, batch: int = 128) -> None:
    """One optimizer step of ResNet-20: dense, gated, gated with penalty and step."""
    torch.manual_seed(0)
    dense = build("resnet20").train()
    gated = copy.deepcopy(dense)
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    shrinker = pcs.attach_(gated, x[:2])
    gated.train()
    shrinker.method.steps = 500
    optimizers = {
        dense: torch.optim.SGD(dense.parameters(), lr=1e-3, momentum=0.9),
        gated: torch.optim.SGD(shrinker.param_groups(5e-4), lr=1e-3, momentum=0.9),
    }

    def step(model: nn.Module, *, shrink: bool = False) -> None:
        loss = F.cross_entropy(model(x), y)
        if shrink:
            loss = loss + shrinker.penalty()
        loss.backward()
        optimizers[model].step()
        optimizers[model].zero_grad()
        if shrink:
            shrinker.step()

    plain, gates, whole = take_turns(rounds, lambda: step(dense), lambda: step(gated), lambda: step(gated, shrink=True))
    print(
        f"ResNet-20 step, batch {batch}: dense {plain:.0f} ms, gated {gates:.0f} ms ({gates / plain:.3f}), "
        f"gated + penalty + step {whole:.0f} ms ({whole / plain:.3f}; goal 1.15)"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--skip-surgery", action="store_true")
    parser.add_argument("--against", type=Path, help="a clone, or its src folder, to compare this tree with")
    parser.add_argument("--starts", type=int, default=3, help="with --against: how often both processes are started")
    options = parser.parse_args()
    if options.against is not None:
        against.compare(options.against, options.rounds, options.starts, options.threads)
        return
    torch.set_num_threads(options.threads)
    versions = f"torch {torch.__version__}, Torch-Pruning {tp.__version__}"
    print(f"{versions}, {options.threads} threads, {options.rounds} rounds")
    training_step(max(options.rounds, 9))
    if not options.skip_surgery:
        for row in measure_surgery(Effort(seconds=1.0, rounds=options.rounds)):
            print("  ".join(row.cells()), flush=True)


if __name__ == "__main__":
    main()
