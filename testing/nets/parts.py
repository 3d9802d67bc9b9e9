"""What the tiny networks are made of."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


def block(width_in: int, width_out: int, kernel: int = 3, **options: Any) -> nn.Sequential:
    """Convolution and norm; their names end in .0 and .1."""
    conv = nn.Conv2d(width_in, width_out, kernel, padding=kernel // 2, bias=False, **options)
    return nn.Sequential(conv, nn.BatchNorm2d(width_out))


class Stem(nn.Module):
    """What most nets here share: a first block ``a`` and a classifier ``head``."""

    def __init__(self, width: int = 8, last: int | None = None) -> None:
        super().__init__()
        self.a = block(3, width)
        self.head = nn.Linear(last or width, 5)

    def classify(self, x: Tensor) -> Tensor:
        return self.head(x.mean((2, 3)))


IMAGE = (3, 3, 8, 8)
OUTPUT = {"head": "network output"}
