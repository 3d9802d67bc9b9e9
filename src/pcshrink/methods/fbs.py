"""Feature boosting and suppression: the channels of a layer that matter for an input are predicted from its input."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.methods.base import Step
from pcshrink.methods.dynamic import Density
from pcshrink.methods.pooling import pool
from pcshrink.methods.reading import ReadingGate
from pcshrink.methods.recording import Recording
from pcshrink.surgery.gate import Axes, Gate, GateSpec, Role

STEP = 0.1  # the density is lowered in steps of this size


@dataclass(frozen=True, kw_only=True)
class FBSConfig(MethodConfig):
    """Settings of feature boosting and suppression; the density d is 1 - ``ratio``.

    Attributes:
        l1: Weight of the saliences that pass, summed over layers and channels, mean over the batch.
    """

    method: ClassVar[str] = "fbs"

    l1: float = 1e-8

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check(is_number(self.l1) and self.l1 >= 0, "l1", self.l1, "a number of at least 0")


class FBSGate(Recording[Tensor], ReadingGate, kind="fbs"):
    """Multiplies the largest saliences of each sample, and zero for all others.

    Attributes:
        kept: How many channels pass.
        recorded: What was multiplied in the newest training pass, call by call.
    """

    AXES: ClassVar[Axes] = {
        "mask": {0: "own"},
        "predictor.weight": {0: "own", 1: "fed"},
        "predictor.bias": {0: "own"},
    }
    SWITCHES: ClassVar[tuple[str, ...]] = ("masked", "kept")
    FOLDS: ClassVar[bool] = False

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.predictor = nn.Linear(spec.in_features, spec.channels)
        nn.init.trunc_normal_(self.predictor.weight, std=0.05, a=-0.1, b=0.1)
        nn.init.ones_(self.predictor.bias)
        self.kept = spec.channels

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        """The shape of each tensor that has own or fed channels."""
        own, fed = spec.channels, spec.in_features
        return {"mask": [own], "predictor.weight": [own, fed], "predictor.bias": [own]}

    @classmethod
    def costs(cls, spec: GateSpec) -> dict[Role, dict[str, float]]:
        """The predictor, as seen from its outputs."""
        wide = float(spec.in_features)
        return {"own": {"params": wide + 1, "madds": wide, "mem_access": wide}}

    def read(self, x: Tensor) -> Tensor:
        """The mean size of each channel."""
        return pool(x.abs(), self.spec.source_axis)

    def forward(self, size: Tensor) -> Tensor:
        """The salience of each channel: (B, C_in) -> (B, C)."""
        with torch.autocast(size.device.type, enabled=False):
            return F.relu(self.predictor(size.to(self.predictor.weight.dtype)))

    def factor(self, x: Tensor) -> Tensor:
        """The salience where it is among the largest of its sample."""
        salience: Tensor = self(self.reading())
        factor = salience * winners(salience, self.kept)
        if self.training:
            self.record(factor)
        return factor * self.mask if self.masked else factor


@torch.no_grad()
def winners(salience: Tensor, kept: int) -> Tensor:
    """Mark the entries above the (kept + 1)-th largest of their row: (B, C) -> 0 or 1 (B, C)."""
    if kept >= salience.shape[-1]:
        return torch.ones_like(salience)
    limit = salience.topk(kept + 1, dim=-1).values[..., -1:]
    return (salience > limit).to(salience.dtype)


class FBS(Density[FBSConfig]):
    """Feature boosting and suppression: a linear predictor picks the most salient channels for each input.

    u = mean over space of |x|, for the input x of a convolution; g = ReLU(u Phi + rho); pi = g where g is above the
    (k + 1)-th largest entry of its sample, else 0, with k = ceil(d C); out = pi (norm(conv(x)) + beta). The density d
    falls from 1 in steps of 0.1 during the shrinking phase. No gradient flows through the choice. Phi starts from a
    truncated normal distribution of deviation 0.05, rho from 1. Every convolution has a gate.

    Departures: the norm keeps its learned scale, which the source removes in favour of g, so that trained weights can
    be started from. g is rectified everywhere, as the paper has it; the source's program lets it be negative where
    no activation follows. SGD trains it as everything else, where the source has RMSProp. With a budget the
    density is found by measuring, and looked after at the end of every epoch.
    """

    Config: ClassVar[type[MethodConfig]] = FBSConfig
    Gate: ClassVar[type[Gate]] = FBSGate
    unit: ClassVar[str] = "output channel, for each input"
    starts_from: ClassVar[str] = "dense weights"
    budget_by: ClassVar[str] = "the density of all gates"
    needs: ClassVar[tuple[str, ...]] = ("pretrained weights",)
    reference: ClassVar[str] = "Gao et al., Dynamic Channel Pruning: Feature Boosting and Suppression, ICLR 2019"

    def gate_spec(self, spec: GateSpec) -> GateSpec:
        """With a predictor."""
        return replace(spec, kind=FBSGate.kind)

    def open(self, goal: float) -> None:
        """Let this share of the channels of every gate pass."""
        self._set(dict.fromkeys(self.gates, goal))

    def follow(self) -> None:
        """Let pass what the steps down allow by now."""
        self._set({name: density(share, self.progress, self.started) for name, share in self.shares().items()})

    def _set(self, shares: dict[str, float]) -> None:
        numbers = self.channels(shares)
        for name, gate in self.fbs_gates.items():
            gate.kept = numbers[name]

    @property
    def fbs_gates(self) -> dict[str, FBSGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, FBSGate)}

    def loss(self, step: Step | None = None) -> Tensor | None:
        """The sum of what passes."""
        passed = [factor for gate in self.fbs_gates.values() for factor in gate.recorded]
        if not passed or not self.config.l1:
            return None
        return self.config.l1 * torch.stack([factor.sum(dim=-1).mean() for factor in passed]).sum()

    def figures(self) -> dict[str, float]:
        """The share of the channels that pass."""
        gates = self.fbs_gates.values()
        return {"density": sum(g.kept for g in gates) / sum(g.spec.channels for g in gates)}


def density(goal: float, progress: float, started: bool) -> float:
    """The density at a point of the shrinking phase: 1 before it, then lower by 0.1 in equal parts, last the goal."""
    stages = math.ceil((1 - goal) / STEP - 1e-9)
    if not started or not stages:
        return 1.0 if not started else goal
    return max(goal, 1 - STEP * (min(math.floor(progress * stages), stages - 1) + 1))
