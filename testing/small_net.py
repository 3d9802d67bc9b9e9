"""A small residual network, made-up data that it learns within seconds, and the loop of the README."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(y)))


def small_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), Block(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


class MadeUpData:
    """Five patterns under noise, in batches of a size."""

    def __init__(self, seed: int = 0, size: int = 64) -> None:
        self.size = size
        self.patterns = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(7))
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self) -> tuple[Tensor, Tensor]:
        size = self.size
        labels = torch.randint(0, 5, (size,), generator=self.generator)
        return self.patterns[labels] + 1.5 * torch.randn(size, 3, 12, 12, generator=self.generator), labels


EXAMPLE = torch.randn(2, 3, 12, 12)
STRONG = 30.0  # pushes whatever the task says, so that tests do not depend on how a strength is calibrated


def train(model: nn.Module, shrinker: pcs.Shrinker, optimizer: Any, data: MadeUpData, steps: int) -> list[Tensor]:
    """The loop of the README; the selected sets, step by step."""
    history = []
    for _ in range(steps):
        model.train()
        x, y = data.batch()
        loss = F.cross_entropy(model(x), y) + shrinker.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()
        history.append(torch.cat(list(shrinker.selected().values())))
    return history


def accuracy(model: nn.Module) -> float:
    model.eval()
    x, y = MadeUpData(seed=99, size=1000).batch()
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def sgd(shrinker: pcs.Shrinker) -> torch.optim.SGD:
    return torch.optim.SGD(shrinker.param_groups(5e-4), lr=0.05, momentum=0.9)
