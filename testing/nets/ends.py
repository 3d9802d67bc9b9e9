"""Several inputs, several outputs, branches that lead nowhere."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from testing.nets.case import net
from testing.nets.parts import IMAGE, OUTPUT, Stem, block


@net(IMAGE, (3, 2, 8, 8), groups="a.0+b.0", refused=OUTPUT)
class TwoInputs(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.b = block(2, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.classify(F.relu(self.a(x) + self.b(y)))


@net(IMAGE, groups="a.0", refused=OUTPUT | {"side": "network output"})
class TwoOutputs(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.relu(self.a(x))
        return self.classify(y), self.side(y)


@net(IMAGE, groups="b.0", refused=OUTPUT | {"a.0": "network output"})
class DictOutput(Stem):
    """Features that are returned as well must stay."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(8, 6)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = F.relu(self.a(x))
        return {"features": [y], "out": self.classify(F.relu(self.b(y)))}


@net(IMAGE, groups="a.0", refused=OUTPUT | {"never": "not used", "dropped": "never read"})
class UnusedBranch(Stem):
    def __init__(self) -> None:
        super().__init__()
        self.never, self.dropped = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(x))
        self.dropped(y)
        return self.classify(y)


@net(IMAGE, groups="a.0 b.0 aux.0", refused=OUTPUT | {"aux.2": "network output"})
class AuxiliaryHead(Stem):
    """A second head that runs in training mode only: its width must be cut with the others."""

    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b, self.aux = block(8, 6), nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 5, 1))

    def forward(self, x: Tensor) -> Any:
        y = F.relu(self.a(x))
        out = self.classify(F.relu(self.b(y)))
        return (out, self.aux(y)) if self.training else out
