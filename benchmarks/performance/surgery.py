"""Attaching and cutting beside Torch-Pruning, which proves nothing: its graph alone, and its whole cut."""

from __future__ import annotations

import copy
import gc
import time
import warnings
from collections.abc import Callable, Iterator

import torch
import torch_pruning as tp
from torch import nn

import pcshrink as pcs
from benchmarks.performance.rows import Effort, Row
from pcshrink.measure.timing import paired_ratio
from pcshrink.models import create

NETS = {
    "resnet50": "ResNet-50",
    "mobilenet_v2": "MobileNetV2",
    "densenet121": "DenseNet-121",
    "convnext_tiny": "ConvNeXt-T",
}


def contestants(name: str) -> dict[str, Callable[[], object]]:
    """Both libraries, each on a fresh copy of the network in every call."""
    torch.manual_seed(0)
    model, x = create(f"torchvision:{name}"), torch.randn(1, 3, 224, 224)

    def their_graph() -> object:
        return tp.DependencyGraph().build_dependency(copy.deepcopy(model), example_inputs=x)

    def their_cut() -> None:
        dense = copy.deepcopy(model)
        last = [m for m in dense.modules() if isinstance(m, nn.Linear)]
        chance = tp.importance.RandomImportance()
        tp.pruner.MagnitudePruner(dense, x, chance, pruning_ratio=0.5, ignored_layers=last).step()

    def our_cut() -> nn.Module:
        shrinker = pcs.attach_(copy.deepcopy(model), x)
        plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
        return pcs.compact(shrinker.model, plan, x)

    def forward() -> object:
        with torch.no_grad():
            return model(x)

    return {
        "graph": their_graph,
        "their cut": their_cut,
        "attach": lambda: pcs.attach_(copy.deepcopy(model), x),
        "attach without proof": lambda: pcs.attach_(copy.deepcopy(model), x, pcs.ShrinkConfig(prove=False)),
        "our cut": our_cut,
        "a copy": lambda: copy.deepcopy(model),
        "a forward pass": forward,
    }


def take_turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every call, one for each round.

    Networks with hooks and graphs of operations are cycles, so what a call leaves behind is collected before the next
    one begins; the collector stays on during the calls, as it is for users.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name in calls if number % 2 else reversed(calls):
            gc.collect()
            began = time.process_time()
            calls[name]()
            if number:  # the first round warms up
                times[name].append(time.process_time() - began)
    return times


def measure_surgery(effort: Effort) -> Iterator[Row]:
    """One image of 224 px, half of every group; every contestant begins with a copy of the network."""
    for name, title in NETS.items():
        if effort.match not in title:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times = take_turns(contestants(name), effort.rounds)
        ratio = paired_ratio(times["attach"], times["graph"])
        yield Row.of("surgery", f"`attach_` with proof / Torch-Pruning's graph, {title}", 3.0, ratio)
        ratio = paired_ratio(times["our cut"], times["their cut"])
        work = f"`attach_`, plan and `compact`, proven twice / Torch-Pruning's whole cut, unproven, {title}"
        yield Row.of("surgery", work, 2.0, ratio)
        for part in ("attach without proof", "a copy", "a forward pass"):
            ratio = paired_ratio(times[part], times["graph"])
            yield Row.of("surgery", f"{part} / Torch-Pruning's graph, {title}", None, ratio)
