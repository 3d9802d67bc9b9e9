"""Layers one after another: convolutions of all kinds and perceptrons."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.nets.case import net
from testing.nets.parts import IMAGE, OUTPUT, Stem, block


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class Chain(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x)))))


@net(IMAGE, groups="0 2", refused={"4": "network output"})
def BiasOnly() -> nn.Module:  # noqa: N802 - named as the classes beside it
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 4, 1)
    )  # fmt: skip


@net(IMAGE, groups="0 2", refused={"4": "network output"})
def NoNorm() -> nn.Module:  # noqa: N802
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.LeakyReLU(),
        nn.Conv2d(8, 6, 3, bias=False), nn.GELU(), nn.Conv2d(6, 4, 1),
    )  # fmt: skip


@net(IMAGE, groups="a.0 fc", refused={"out": "network output"})
class FlattenLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.fc, self.out = block(3, 6), nn.Linear(6 * 16, 10), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.fc(torch.flatten(F.max_pool2d(F.relu(self.a(x)), 2), 1))))


@net(IMAGE, groups="a.0 up.0 c.0", refused=OUTPUT)
class Transposed(Stem):
    def __init__(self) -> None:
        super().__init__(8, 4)
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 6, 2, stride=2), nn.BatchNorm2d(6))
        self.c = block(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.c(F.relu(self.up(F.relu(self.a(x)))))))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class Pixels(Stem):
    """Channels become space in runs of four."""

    def __init__(self) -> None:
        super().__init__(16, 6)
        self.b = block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.pixel_shuffle(F.relu(self.a(x)), 2))))


@net((3, 4, 12), groups="0 3", refused={"5": "network output"})
def Signal() -> nn.Module:  # noqa: N802
    return nn.Sequential(
        nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(),
        nn.Conv1d(8, 6, 3, stride=2), nn.MaxPool1d(2), nn.Conv1d(6, 4, 1),
    )  # fmt: skip


@net((2, 2, 5, 5, 5), groups="0 3", refused={"5": "network output"})
def Volume() -> nn.Module:  # noqa: N802
    return nn.Sequential(
        nn.Conv3d(2, 8, 3), nn.BatchNorm3d(8), nn.ReLU(),
        nn.Conv3d(8, 6, 1), nn.AvgPool3d(3), nn.Conv3d(6, 4, 1),
    )  # fmt: skip


@net(IMAGE, groups="own b.0", refused=OUTPUT)
class Functional(nn.Module):
    """Parameters of its own in a functional convolution."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel, self.shift = nn.Parameter(torch.randn(8, 3, 3, 3) / 5), nn.Parameter(torch.randn(8))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.kernel, self.shift, padding=1)

    def __init__(self) -> None:
        super().__init__()
        self.own, self.b, self.head = self.Own(), block(8, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.b(F.relu(self.own(x)))).mean((2, 3)))


@net((5, 6), groups="0 2", refused={"4": "network output"})
def Perceptron() -> nn.Module:  # noqa: N802
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 4))


@net((5, 6), groups="0 3", refused={"6": "network output"})
def NormedPerceptron() -> nn.Module:  # noqa: N802
    return nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(),
        nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4),
    )  # fmt: skip


@net(IMAGE, groups="a.0 b.0 c.0", refused=OUTPUT)
class Dilated(Stem):
    def __init__(self) -> None:
        super().__init__(8, 4)
        self.b = nn.Sequential(nn.Conv2d(8, 6, 3, padding=2, dilation=2), nn.BatchNorm2d(6))
        self.c = nn.Sequential(nn.Conv2d(6, 4, 3, stride=2, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.hardswish(self.c(F.hardswish(self.b(F.hardswish(self.a(x)))))))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class DropoutBetween(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b, self.drop = block(8, 6), nn.Dropout2d(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.dropout(F.relu(self.b(self.drop(F.relu(self.a(x))))), 0.3, self.training))


@net(IMAGE, groups="b.0", refused=OUTPUT | {"a.0": "sort"})
class SortedChannels(Stem):
    """An operation without a rule: what reaches it stays."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x)).sort(dim=1).values)))


@net(IMAGE, groups="b.0", refused=OUTPUT | {"a.0": "fft"})
class Fourier(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return self.classify(F.relu(self.b(torch.fft.fft2(y).real)))
