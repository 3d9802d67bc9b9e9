"""What treats channels one by one or in groups: grouped convolutions, norms, excitation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.nets.case import net
from testing.nets.parts import IMAGE, OUTPUT, Stem, block


@net(IMAGE, groups="a.0+b.0 c.0", refused=OUTPUT)
class Depthwise(Stem):
    """An inverted residual's middle: the depthwise convolution ties what it reads to what it writes."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b, self.c = block(8, 8, groups=8), block(8, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.c(F.relu6(self.b(F.relu6(self.a(x))))))


@net(IMAGE, groups="a.0+b.0", refused=OUTPUT)
class DepthMultiplier(Stem):
    def __init__(self) -> None:
        super().__init__(8, 24)
        self.b = block(8, 24, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x)))))


@net(IMAGE, groups="a.0+b.0", refused=OUTPUT)
class ManyGroups(Stem):
    """Whole groups leave."""

    def __init__(self) -> None:
        super().__init__(16)
        self.b = block(16, 16, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x)))))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class FewGroups(Stem):
    """The same places of every group leave."""

    def __init__(self) -> None:
        super().__init__(16)
        self.b = block(16, 16, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x)))))


@net(IMAGE, groups="a.0+up squeeze", refused=OUTPUT)
class ExciteLinear(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.up = nn.Linear(8, 4), nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        scale = torch.sigmoid(self.up(F.relu(self.squeeze(y.mean((2, 3))))))
        return self.classify(y * scale[:, :, None, None])


@net(IMAGE, groups="a.0+up squeeze", refused=OUTPUT)
class ExciteConv(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.a(x))
        scale = F.hardsigmoid(self.up(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return self.classify(scale * y)


@net(IMAGE, groups="b.0", refused=OUTPUT | {"a.0": "sigmoid"})
class SigmoidBetween(Stem):
    """sigmoid(0) is not 0, so a dead channel would still be read."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(torch.sigmoid(self.a(x)))))


@net(IMAGE, groups="b c", refused=OUTPUT)
class GroupNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b, self.norm, self.c = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 6, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.c(F.relu(self.norm(self.b(x))))).mean((2, 3)))


@net((3, 7, 6), groups="c", refused=OUTPUT | {"b": "layer_norm"})
class LayerNormed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b, self.norm, self.c = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 10)
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.gelu(self.c(self.norm(self.b(x)))))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class PerChannelPReLU(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b, self.p, self.q = block(8, 6), nn.PReLU(8), nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.q(self.b(self.p(self.a(x)))))
