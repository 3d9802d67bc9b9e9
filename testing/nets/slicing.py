"""Channels that are split, sliced and shuffled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from testing.nets.case import net
from testing.nets.parts import IMAGE, OUTPUT, Stem, block


@net(IMAGE, groups="a.0 b.0 c.0", refused=OUTPUT)
class Chunk(Stem):
    """Both halves of ``a`` keep the same places, so that chunk(2) still cuts where it must."""

    def __init__(self) -> None:
        super().__init__(8, 10)
        self.b, self.c = block(4, 6), block(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.relu(self.a(x)).chunk(2, 1)
        return self.classify(F.relu(torch.cat([self.b(left), self.c(right)], 1)))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class Split(Stem):
    def __init__(self) -> None:
        super().__init__(12, 6)
        self.b = block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        one, two, three = y.split(y.shape[1] // 3, 1)
        return self.classify(F.relu(self.b(one + two * three)))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class SplitByAttribute(Stem):
    """The module's own number for the width that it halves is corrected."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.expand_chs, self.b = 8, block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        one, two = F.relu(self.a(x)).split(self.expand_chs // 2, 1)
        return self.classify(F.relu(self.b(one + two)))


@net(IMAGE, groups="a.0 b.0 c.0", refused=OUTPUT)
class SplitByList(Stem):
    """Pieces of different sizes, kept in a list: each shrinks by itself, and so does its place in the list."""

    def __init__(self) -> None:
        super().__init__(8, 10)
        self.splits = (3, 5)
        self.b, self.c = block(3, 6), block(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.relu(self.a(x)).split(self.splits, 1)
        return self.classify(F.relu(torch.cat([self.b(left), self.c(right)], 1)))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class SliceFromShape(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        half = y.shape[1] // 2
        return self.classify(F.relu(self.b(y[:, :half] + y[:, half:])))


@net(IMAGE, groups="b.0", refused=OUTPUT | {"a.0": "slice"})
class SliceFixed(Stem):
    """A width written into the code cannot follow the cut."""

    def __init__(self) -> None:
        super().__init__(10, 6)
        self.b = block(3, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x))[:, 2:5])))


@net(IMAGE, groups="b.0", refused=OUTPUT | {"a.0": "proof failed"})
class SliceHalfFixed(Stem):
    """It looks like half of the channels, but it is a number: only the proof can tell."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.relu(self.a(x))[:, :4])))


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class Shuffle(Stem):
    def __init__(self) -> None:
        super().__init__(8, 8)
        self.b = block(8, 8, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.b(F.relu(self.a(x))))
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.classify(y)


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class Glu(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.glu(self.a(x), 1))))
