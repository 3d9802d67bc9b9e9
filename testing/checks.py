"""What the equivalence tests, the fuzzer and the zoo all do: stir, cut at random, compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.graph.model import run, tensors
from pcshrink.surgery.gates import find_gates

LIMIT = {torch.float32: 1e-5, torch.float64: 1e-12}


@torch.no_grad()
def stir_gates_(model: nn.Module, seed: int = 0) -> None:
    """Give all gates saliences that differ between channels and inputs, as training would."""
    generator = torch.Generator().manual_seed(seed)
    for gate in find_gates(model).values():
        for weight in (gate.generator.fc1.weight, gate.generator.fc2.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5)
        gate.generator.fc2.bias.copy_(torch.rand(gate.spec.channels, generator=generator) * 2)
        gate.running.copy_(torch.rand(gate.spec.channels, generator=generator) * 0.6 + 0.4)


def random_keep(shrinker: pcs.Shrinker, seed: int, share: float | None = None) -> dict[str, Tensor]:
    """A random choice of channels for every group: at least one stays, and where there are two, one goes.

    Args:
        shrinker: Whose groups.
        seed: The same seed gives the same choice.
        share: Part of the channels that stays; ``None`` draws it for each group.
    """
    generator = torch.Generator().manual_seed(seed)
    keep = {}
    for group in shrinker.groups:
        part = float(torch.rand((), generator=generator)) if share is None else share
        count = min(max(round(part * group.channels), 1), max(group.channels - 1, 1))
        flags = torch.zeros(group.channels, dtype=torch.bool)
        flags[torch.randperm(group.channels, generator=generator)[:count]] = True
        keep[group.name] = flags
    return keep


@torch.no_grad()
def outputs(model: nn.Module, example: Any) -> list[Tensor]:
    """All tensors that a model gives."""
    return tensors(run(model, example))


def relative(expected: list[Tensor], got: list[Tensor]) -> float:
    """The largest difference, as a share of the largest value; NaN and infinity count as a difference."""
    assert [t.shape for t in expected] == [t.shape for t in got]
    worst = 0.0
    for one, other in zip(expected, got, strict=True):
        if one.numel():
            gap = (one.double() - other.double()).abs() / (one.double().abs().max() or 1.0)
            worst = max(worst, float(gap.nan_to_num(nan=float("inf")).max()))
    return worst


def same_top(expected: list[Tensor], got: list[Tensor], limit: float) -> bool:
    """Whether the largest channel is the same everywhere, save where two are as good as equal."""
    for one, other in zip(expected, got, strict=True):
        if one.ndim < 2 or one.shape[1] < 2 or not one.is_floating_point():
            continue
        best, second = one.topk(2, dim=1).values.unbind(1)
        clear = best - second > 2 * limit * one.abs().max()
        if not torch.equal(one.argmax(1)[clear], other.argmax(1)[clear]):
            return False
    return True


def train_once(model: nn.Module, example: Any) -> None:
    """One training pass, forward and backward; every gradient must be finite."""
    model.train()
    found = [t for t in tensors(run(model, example)) if t.requires_grad]
    if found:
        torch.stack([t.square().mean() for t in found]).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), f"gradient of {name}"
