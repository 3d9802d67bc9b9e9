"""Tiny networks, one for each graph pattern, with the groups they must have and the layers that must stay.

``CASES`` is the table: name -> how to build the net, the shapes of its inputs, the groups (the writers of a
group joined by ``+``, groups separated by spaces) and the refusals (layer -> a piece of the reason).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.graph.model import run


@dataclass(frozen=True)
class Case:
    """One tiny net and what is expected of it."""

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    groups: frozenset[frozenset[str]]
    refused: dict[str, str] = field(default_factory=dict)

    def model(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
        """A fresh copy in evaluation mode, the same for the same seed."""
        return settle_(self.build, seed).to(dtype).eval()

    def inputs(self, dtype: torch.dtype = torch.float32, seed: int = 1) -> Any:
        """An example input: a tensor, or a tuple of them."""
        generator = torch.Generator().manual_seed(seed)
        made = tuple(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in self.shapes)
        return made[0] if len(made) == 1 else made


CASES: dict[str, Case] = {}


def net(*shapes: tuple[int, ...], groups: str, refused: dict[str, str] | None = None) -> Callable[[Any], Any]:
    """Put a module class (or a function that builds a module) into the table."""

    def register(build: Any) -> Any:
        name = build.__name__
        together = frozenset(frozenset(g.split("+")) for g in groups.split())
        CASES[name] = Case(name, build, shapes, together, refused or {})
        return build

    return register


def settle_(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Build a net with norms that do something, so that a wrong cut shows; zeroed weights stay zero."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
        randomise_(model)
    return model


@torch.no_grad()
def randomise_(model: nn.Module) -> nn.Module:
    """Give norms and biases values that a trained network would have."""
    for module in model.modules():
        if isinstance(getattr(module, "running_mean", None), Tensor):
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 2.0)
        if isinstance(getattr(module, "bias", None), nn.Parameter):
            module.bias.normal_(std=0.3)
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.ndim == 1 and bool(weight.any()):
            weight.uniform_(0.5, 1.5)
    return model


@torch.no_grad()
def settle_norms_(model: nn.Module, example: Any) -> nn.Module:
    """The same for a deep network: no constant is left, and norms fit what reaches them, as after training."""
    randomise_(model)
    for parameter in model.parameters():
        if parameter.numel() > 1 and bool(parameter.min() == parameter.max()):  # zero heads, layer scales of 1e-6
            parameter.uniform_(-0.5, 0.5) if parameter.ndim < 2 else nn.init.normal_(parameter, std=0.05)
    norms = [m for m in model.modules() if isinstance(getattr(m, "running_mean", None), Tensor)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
    model.train()
    run(model, example)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.running_mean.add_(torch.randn_like(norm.running_mean) * norm.running_var.sqrt() * 0.3)
        norm.running_var.mul_(torch.rand_like(norm.running_var) * 1.5 + 0.5)
    return model.eval()


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


@net(IMAGE, groups="a.0 fc", refused={"out": "network output"})
class FlattenLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.fc, self.out = block(3, 6), nn.Linear(6 * 16, 10), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.fc(torch.flatten(F.max_pool2d(F.relu(self.a(x)), 2), 1))))


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


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class Glu(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b = block(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.relu(self.b(F.glu(self.a(x), 1))))


class Attention(nn.Module):
    """Heads are the units: whole ones leave."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, width // num_heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return self.proj(y.transpose(1, 2).reshape(n, length, -1))


@net(
    (2, 5, 6),
    groups="attn.qkv up",
    refused={"embed": "layer_norm", "attn.proj": "layer_norm", "down": "", **OUTPUT},
)
class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attn = nn.Linear(6, 16), Attention(16, 4)
        self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.up, self.down, self.head = nn.Linear(16, 24), nn.Linear(24, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.attn(self.n1(x))
        x = x + self.down(F.gelu(self.up(self.n2(x))))
        return self.head(x.mean(1))


@net(IMAGE, groups="a.0+c.0 b.0", refused=OUTPUT)
class Frozen(Residual):
    def __init__(self) -> None:
        super().__init__()
        for parameter in (*self.a.parameters(), *self.c.parameters()):
            parameter.requires_grad_(False)


@net(IMAGE, groups="a.0 b.0 c.0", refused=OUTPUT)
class Dilated(Stem):
    def __init__(self) -> None:
        super().__init__(8, 4)
        self.b = nn.Sequential(nn.Conv2d(8, 6, 3, padding=2, dilation=2), nn.BatchNorm2d(6))
        self.c = nn.Sequential(nn.Conv2d(6, 4, 3, stride=2, padding=1, padding_mode="reflect"), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.hardswish(self.c(F.hardswish(self.b(F.hardswish(self.a(x)))))))


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


@net(IMAGE, groups="a.0 b.0", refused=OUTPUT)
class DropoutBetween(Stem):
    def __init__(self) -> None:
        super().__init__(8, 6)
        self.b, self.drop = block(8, 6), nn.Dropout2d(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(F.dropout(F.relu(self.b(self.drop(F.relu(self.a(x))))), 0.3, self.training))
