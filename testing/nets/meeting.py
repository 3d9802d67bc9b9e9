"""Branches that meet: sums, concatenations, one layer used twice."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.nets.case import net
from testing.nets.parts import IMAGE, OUTPUT, Stem, block


@net(IMAGE, groups="a.0+c.0 b.0", refused=OUTPUT)
class Residual(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.b, self.c = block(8, 6), block(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return self.classify(F.relu(y + self.c(F.relu(self.b(y)))))


@net(IMAGE, groups="a.0 b.0 c.0+d.0", refused=OUTPUT)
class Downsample(Stem):
    def __init__(self) -> None:
        super().__init__(8, 12)
        self.b, self.c = block(8, 12, stride=2), block(12, 12)
        self.d = block(8, 12, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return self.classify(F.relu(self.c(F.relu(self.b(y))) + self.d(y)))


@net(IMAGE, groups="a.0+c.0 b.0", refused=OUTPUT)
class InPlace(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.b, self.c = block(8, 6), block(6, 8)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.a(x))
        z = self.c(self.act(self.b(y)))
        z += y
        return self.classify(self.act(z))


@net(IMAGE, groups="a.0+c.0 b.0", refused=OUTPUT)
class ZeroInit(Residual):
    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.c[1].weight)


@net(IMAGE, groups="a.0 b.0 c.0", refused=OUTPUT)
class Concat(Stem):
    def __init__(self) -> None:
        super().__init__(8, 10)
        self.b, self.c = block(8, 6), block(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return self.classify(torch.cat([F.relu(self.b(y)), F.relu(self.c(y))], 1))


@net(IMAGE, groups="a.0 b.0 c.0 d.0 e", refused=OUTPUT)
class ConcatReuse(Stem):
    """Three tensors side by side, twice, in another order."""

    def __init__(self) -> None:
        super().__init__(4, 6)
        self.b, self.c = block(4, 6), block(4, 4)
        self.d, self.e = block(14, 6), nn.Conv2d(20, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.a(x))
        b, c = F.relu(self.b(a)), F.relu(self.c(a))
        d = F.relu(self.d(torch.cat([a, b, c], 1)))
        return self.classify(self.e(torch.cat([c, d, a, b], 1)))


@net(IMAGE, groups="stem c1 c2", refused=OUTPUT)
class Dense(nn.Module):
    """DenseNet: norms before the convolutions, on what was joined; one gate at each norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.c1, self.c2 = (
            nn.Conv2d(3, 6, 3),
            nn.Conv2d(6, 4, 3, padding=1),
            nn.Conv2d(10, 4, 3, padding=1),
        )
        self.n1, self.n2, self.n3 = nn.BatchNorm2d(6), nn.BatchNorm2d(10), nn.BatchNorm2d(14)
        self.head = nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.c1(F.relu(self.n1(x)))], 1)
        x = torch.cat([x, self.c2(F.relu(self.n2(x)))], 1)
        return self.head(F.relu(self.n3(x)).mean((2, 3)))


@net(IMAGE, groups="stem+c2 c1", refused=OUTPUT)
class PreActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.c1, self.c2 = (
            nn.Conv2d(3, 8, 3),
            nn.Conv2d(8, 6, 3, padding=1),
            nn.Conv2d(6, 8, 3, padding=1),
        )
        self.n1, self.n2, self.n3 = nn.BatchNorm2d(8), nn.BatchNorm2d(6), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.c2(F.relu(self.n2(self.c1(F.relu(self.n1(x))))))
        return self.head(F.relu(self.n3(x)).mean((2, 3)))


@net(IMAGE, groups="a.0+shared", refused=OUTPUT)
class Shared(Stem):
    """One convolution called twice in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.shared(F.relu(self.shared(F.relu(self.a(x)))))))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class SharedTwice(Stem):
    """One block on two scales."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        return self.classify(F.relu(self.b(y))) + self.classify(F.relu(self.b(F.max_pool2d(y, 2))))


@net(IMAGE, groups="a.0+c.0 b.0", refused=OUTPUT)
class Frozen(Residual):
    def __init__(self) -> None:
        super().__init__()
        for parameter in (*self.a.parameters(), *self.c.parameters()):
            parameter.requires_grad_(False)


@net(IMAGE, groups="a.0 b.0 c.0 d.0 e.0", refused={"out": "network output"})
class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = block(3, 4), block(4, 8, stride=2), block(8, 12, stride=2)
        self.d, self.e, self.out = block(20, 6), block(10, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = F.relu(self.a(x))
        two = F.relu(self.b(one))
        three = F.interpolate(F.relu(self.c(two)), scale_factor=2, mode="bilinear")
        four = F.interpolate(F.relu(self.d(torch.cat([two, three], 1))), scale_factor=2)
        return self.out(F.relu(self.e(torch.cat([F.pad(one, (0, 0, 0, 0)), four], 1))))
