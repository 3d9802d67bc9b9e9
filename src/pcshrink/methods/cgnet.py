"""Channel gating: a part of the input channels decides for each output value whether the rest is worth adding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.coupling.units import Site
from pcshrink.methods.base import ActivityTarget, Step
from pcshrink.methods.dynamic import Knob
from pcshrink.methods.inner import InnerGate, why_not_inside
from pcshrink.methods.layers import ConvLayer
from pcshrink.surgery.gate import Axes, Gate, GateSpec

OPEN = -3.0  # a shift of the thresholds at which nearly everything is computed
CLOSED = 20.0  # one at which nothing is


@dataclass(frozen=True, kw_only=True)
class CGNetConfig(MethodConfig):
    """Settings of channel gating; ``ratio`` has no effect.

    Attributes:
        parts: How many parts the input channels are split into; one of them is always read.
        threshold: What the thresholds are pulled to; the higher, the less is computed. Under a budget it is
            only where the search starts: a shift of all thresholds is found.
        pull: How strongly.
        init: Where they start.
        alpha: Slope of the sigmoid that stands for the step in the backward pass.
        sparse_backward: No gradient through the decision where it is off.
    """

    method: ClassVar[str] = "cgnet"

    parts: int = 4
    threshold: float = 1.0
    pull: float = 1e-4
    init: float = 0.0
    alpha: float = 2.0
    sparse_backward: bool = True

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check(type(self.parts) is int and self.parts >= 2, "parts", self.parts, "a whole number of at least 2")
        self.check_positive("alpha")
        for name in ("threshold", "init"):
            self.check(is_number(getattr(self, name)), name, getattr(self, name), "a number")
        self.check(is_number(self.pull) and self.pull >= 0, "pull", self.pull, "a number of at least 0")


class CGNetGate(InnerGate, kind="cgnet"):
    """Adds the conditional path where the partial sums are high enough.

    Attributes:
        threshold: What normalised partial sums must exceed (C,).
        shift: Is added to all thresholds.
        settling: Take the norm's statistics from what passes, besides in training.
    """

    AXES: ClassVar[Axes] = {
        "mask": {0: "own"},
        "threshold": {0: "own"},
        "norm.running_mean": {0: "own"},
        "norm.running_var": {0: "own"},
    }
    SWITCHES: ClassVar[tuple[str, ...]] = ("masked", "shift")

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.parts, self.alpha = int(spec.settings["parts"]), float(spec.settings["alpha"])
        self.threshold = nn.Parameter(torch.full((spec.channels,), float(spec.settings["init"])))
        self.norm = nn.BatchNorm2d(spec.channels, affine=False)
        self.shift = OPEN
        self.settling = False

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        """The shape of each tensor that has own channels."""
        return {leaf: [spec.channels] for leaf in cls.AXES}

    def partial(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        """The base path: output group i reads part i of the input channels."""
        out, inner = conv.out_channels // self.parts, conv.in_channels // self.parts
        blocks = conv.weight.unflatten(0, (self.parts, out)).unflatten(2, (self.parts, inner))
        kernel = torch.cat([blocks[i, :, i] for i in range(self.parts)])
        return F.conv2d(x, kernel, conv.bias, conv.stride, conv.padding, conv.dilation, self.parts)

    def forward(self, partial: Tensor) -> Tensor:
        """1 where the rest is added, 0 where not; in the backward pass a sigmoid."""
        was = self.norm.training
        self.norm.train(was or self.settling)
        height = self.norm(partial) - (self.threshold + self.shift)[:, None, None]
        self.norm.train(was)
        soft = torch.sigmoid(self.alpha * height)
        hard = (soft > 0.5).to(soft.dtype)
        if bool(self.spec.settings["sparse"]):
            soft = soft * hard
        return hard + (soft - soft.detach())

    def convolve(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        """Partial sums everywhere, full ones where it is decided so."""
        partial = self.partial(conv, x)
        on: Tensor = self(partial)
        self.tell(1 / self.parts + (1 - 1 / self.parts) * on)
        return partial + on.to(partial.dtype) * (type(conv).forward(conv, x) - partial)


class CGNet(Knob[CGNetConfig]):
    """Channel gating: part of the input decides for each output value whether the rest is added.

    The input channels are split in p parts; output group i always reads part i: Y = (W M) * x with a block-diagonal M.
    d = 1[sigmoid(alpha (norm(Y) - Delta)) > 0.5], the norm without scale and shift, one threshold Delta for each
    channel; out = d (W * x) + (1 - d) Y. The gradient passes the step unchanged into the sigmoid, where d is on
    (``sparse_backward``). The loss gets pull times the sum of (Delta - T)^2. A layer costs 1/p + (1 - 1/p) mean(d).

    Departures: both convolutions of a block are gated and the block stays as it is, where the source gates the first
    one, or moves the activations before the sum; ``include: ["*.conv1"]`` gives the former. During the warm-up
    nearly all is computed, so that trained weights can be started from. With a budget all thresholds are moved
    together, from there to what meets it, and looked after at the end of every epoch: the pull alone takes thousands
    of steps.
    """

    Config: ClassVar[type[MethodConfig]] = CGNetConfig
    Gate: ClassVar[type[Gate]] = CGNetGate
    unit: ClassVar[str] = "output value, for each input"
    starts_from: ClassVar[str] = "nothing"
    budget_by: ClassVar[str] = "a common shift of the thresholds"
    without_widths: ClassVar[str] = "it decides on single values; set shrink.threshold or shrink.budget"
    reference: ClassVar[str] = "Hua et al., Channel Gating Neural Networks, NeurIPS 2019"
    lowest: ClassVar[float] = -CLOSED
    highest: ClassVar[float] = CLOSED

    def unfit(self, layer: ConvLayer) -> str | None:
        """Stem and shortcuts stay whole; the rest must be divisible."""
        if layer.stem:
            return "method cgnet gates no layer that reads the network's input"
        if layer.shortcut:
            return "method cgnet gates no shortcut"
        parts, conv = self.config.parts, layer.conv
        if conv.in_channels % parts or conv.out_channels % parts:
            return f"{conv.in_channels} and {conv.out_channels} channels do not divide into parts: {parts}"
        return why_not_inside(layer)

    def site(self, layer: ConvLayer) -> Site:
        """The convolution itself."""
        return Site(layer.name)

    def gate_spec(self, spec: GateSpec) -> GateSpec:
        """With thresholds."""
        config = self.config
        settings = {"parts": config.parts, "alpha": float(config.alpha), "init": float(config.init),
                    "sparse": config.sparse_backward}  # fmt: skip
        return replace(spec, kind=CGNetGate.kind, settings=settings)

    @property
    def cgnet_gates(self) -> dict[str, CGNetGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, CGNetGate)}

    def set_activity_target(self, target: ActivityTarget) -> None:
        """Let the norms of the partial sums see some images first."""
        if self.goal is None:
            for gate in self.cgnet_gates.values():
                gate.settling = True
            for _ in range(3):  # the running statistics move slowly
                target.cost()
            for gate in self.cgnet_gates.values():
                gate.settling = False
        super().set_activity_target(target)

    def open(self, goal: float) -> None:
        """Move all thresholds."""
        for gate in self.cgnet_gates.values():
            gate.shift = -goal

    def follow(self) -> None:
        """Move the thresholds as far as they are to be by now."""
        if not self.started:
            self.open(-OPEN)
        elif self.goal is None:
            self.open(0.0)
        else:
            self.open(-shift_at(-self.goal, self.progress))

    def loss(self, step: Step | None = None) -> Tensor | None:
        """How far the thresholds are from where they are to be."""
        config = self.config
        if not config.pull:
            return None
        squares = [(gate.threshold - config.threshold).square().sum() for gate in self.cgnet_gates.values()]
        return config.pull * torch.stack(squares).sum()

    def figures(self) -> dict[str, float]:
        """Where the thresholds are."""
        levels = torch.cat([gate.threshold.detach() + gate.shift for gate in self.cgnet_gates.values()])
        return {"threshold": float(levels.mean())}


def shift_at(goal: float, progress: float) -> float:
    """The shift after a share of the phase: what is off grows evenly if partial sums are normally distributed."""
    normal = NormalDist()
    if progress >= 1:
        return goal
    return normal.inv_cdf(normal.cdf(OPEN) + (normal.cdf(goal) - normal.cdf(OPEN)) * progress)
