"""Dynamic group convolution: every head of a layer chooses its own input channels for each input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.coupling.units import Ids, Site
from pcshrink.methods.base import Step
from pcshrink.methods.dynamic import Density
from pcshrink.methods.inner import InnerGate, why_not_inside
from pcshrink.methods.layers import ConvLayer
from pcshrink.methods.pooling import pool
from pcshrink.methods.recording import Recording
from pcshrink.surgery.gate import Gate, GateSpec
from pcshrink.surgery.maps import is_channels_last
from pcshrink.surgery.plan import GateSite
from pcshrink.surgery.product import times

WIDE = 80  # layers that read fewer channels squeeze half as much
RISE, FULL = 1 / 12, 3 / 4  # the shares of the training between which more and more channels are switched off


@dataclass(frozen=True, kw_only=True)
class DGCConfig(MethodConfig):
    """Settings of dynamic group convolution; the share of input channels that each head reads is 1 - ``ratio``.

    Attributes:
        heads: Heads of each layer.
        squeeze: The hidden width of a salience module is its layer's input width divided by this.
        l1: Weight of the mean salience, summed over layers and heads.
        own_norm: Normalise and rectify a layer's input once more, as the source does.
    """

    method: ClassVar[str] = "dgc"

    heads: int = 4
    squeeze: int = 16
    l1: float = 1e-5
    own_norm: bool = False

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check_counts("heads", "squeeze")
        self.check(is_number(self.l1) and self.l1 >= 0, "l1", self.l1, "a number of at least 0")


class DGCGate(Recording[Tensor], InnerGate, kind="dgc"):
    """Lets every head of a convolution read its own input channels; head i writes channels i, i + heads, and so on.

    Attributes:
        kept: How many channels each head reads.
        recorded: The saliences (B, heads, C_in) of the newest training pass, call by call.
    """

    SWITCHES: ClassVar[tuple[str, ...]] = ("masked", "kept")

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.heads, hidden = int(spec.settings["heads"]), int(spec.settings["hidden"])
        self.norm = nn.BatchNorm2d(spec.in_features) if spec.settings["own_norm"] else None
        self.fc1 = nn.Linear(spec.in_features, self.heads * hidden, bias=False)
        # One matrix for each head, side by side.
        self.fc2 = nn.Conv1d(self.heads * hidden, self.heads * spec.in_features, 1, groups=self.heads)
        nn.init.ones_(self.fc2.bias)  # type: ignore[arg-type]
        self.kept = spec.in_features

    def forward(self, pooled: Tensor) -> Tensor:
        """The salience of each channel for each head: (B, C_in) -> (B, heads, C_in)."""
        with torch.autocast(pooled.device.type, enabled=False):
            hidden = F.relu(self.fc1(pooled.to(self.fc1.weight.dtype)))
            salience: Tensor = F.relu(self.fc2(hidden[..., None])).squeeze(-1).unflatten(1, (self.heads, -1))
            return salience

    def convolve(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        """Every head on its own selection of x."""
        x = x if self.norm is None else F.relu(self.norm(x))
        salience = self(pool(x, 1))
        if self.training:
            self.record(salience)
        factor = salience * highest(salience, self.kept)
        self.tell((factor != 0).double())
        # Plain convolutions one by one: on a CPU one in groups takes up to three times as long.
        by_head = [
            F.conv2d(times(x, part), conv.weight[i :: self.heads], None, conv.stride, conv.padding, conv.dilation)
            for i, part in enumerate(factor.unbind(1))
        ]
        out = _interleaved(by_head)
        return out if conv.bias is None else out + conv.bias[:, None, None]


def _interleaved(parts: list[Tensor]) -> Tensor:
    """Channel 0 of every part, then channel 1, and so on; in the layout of the parts."""
    if is_channels_last(parts[0]):
        return torch.stack([part.permute(0, 2, 3, 1) for part in parts], dim=4).flatten(3).permute(0, 3, 1, 2)
    return torch.stack(parts, dim=2).flatten(1, 2)


@torch.no_grad()
def highest(salience: Tensor, kept: int) -> Tensor:
    """Mark the entries above all that are switched off, the lowest of each row; equals are switched off as well."""
    off = salience.shape[-1] - kept
    if off <= 0:
        return torch.ones_like(salience)
    limit = salience.topk(off, dim=-1, largest=False).values[..., -1:]
    return (salience > limit).to(salience.dtype)


class DGC(Density[DGCConfig]):
    """Dynamic group convolution: each head of a layer reads the input channels most salient for this input.

    A layer has h heads with C_out / h filters each, over all inputs. u is the mean over space of the input x; for each
    head m = ReLU(W2 ReLU(W1 u) + b) with b starting at 1; the n_off lowest entries of m, and those equal to the highest
    of them, are set to zero for each sample; the head's output is conv_h(x m). Outputs are interleaved. n_off grows
    with the share t of the training: 0 up to 1/12, then C_in (1 - g) 1.5 (t - 1/12), all of C_in (1 - g) from 3/4 on;
    here 3/4 is the end of the shrinking phase. g is 1 - ``ratio``. The loss gets l1 times the sum over layers and heads
    of the mean of m. All convolutions but the stem have heads.

    Departures: a layer's filters are those of the network, head i having every h-th one, so that trained weights can be
    started from; for the same reason the source's own norm and activation before each layer are off (``own_norm``),
    as the network has them already. With a budget g is found by measuring.
    """

    Config: ClassVar[type[MethodConfig]] = DGCConfig
    Gate: ClassVar[type[Gate]] = DGCGate
    unit: ClassVar[str] = "input channel of a head, for each input"
    starts_from: ClassVar[str] = "nothing"
    budget_by: ClassVar[str] = "the share g of input channels that each head reads"
    reference: ClassVar[str] = "Su et al., Dynamic Group Convolution for Accelerating CNNs, ECCV 2020"

    def unfit(self, layer: ConvLayer) -> str | None:
        """The stem stays whole; the rest must be divisible."""
        if layer.stem:
            return "method dgc gates no layer that reads the network's input"
        if layer.conv.out_channels % self.config.heads:
            return f"{layer.conv.out_channels} output channels do not divide into heads: {self.config.heads}"
        return why_not_inside(layer)

    def site(self, layer: ConvLayer) -> Site:
        """The convolution itself."""
        return Site(layer.name)

    def counted(self, entry: GateSite) -> Ids:
        """Input channels."""
        return entry.fed

    def gate_spec(self, spec: GateSpec) -> GateSpec:
        """With a salience module of the configured size for each head."""
        squeeze = self.config.squeeze if spec.in_features >= WIDE else max(self.config.squeeze // 2, 1)
        settings = {"heads": self.config.heads, "hidden": max(spec.in_features // squeeze, 1),
                    "own_norm": self.config.own_norm}  # fmt: skip
        return replace(spec, kind=DGCGate.kind, settings=settings)

    @property
    def dgc_gates(self) -> dict[str, DGCGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, DGCGate)}

    def open(self, goal: float) -> None:
        """Let every head read this share of the channels."""
        self._set(dict.fromkeys(self.gates, goal), 1.0)

    def follow(self) -> None:
        """Switch off as many channels as it is time for."""
        self._set(self.shares(), self.progress)

    def _set(self, shares: dict[str, float], progress: float) -> None:
        numbers = self.channels(shares)
        for name, gate in self.dgc_gates.items():
            width = gate.spec.in_features
            gate.kept = width - switched_off(width - numbers[name], progress)

    def loss(self, step: Step | None = None) -> Tensor | None:
        """The mean salience of all heads."""
        recorded = [salience for gate in self.dgc_gates.values() for salience in gate.recorded]
        if not recorded or not self.config.l1:
            return None
        return self.config.l1 * torch.stack([m.mean(dim=(0, 2)).sum() for m in recorded]).sum()

    def figures(self) -> dict[str, float]:
        """The share of the input channels that the heads read."""
        gates = self.dgc_gates.values()
        return {"density": sum(g.kept for g in gates) / sum(g.spec.in_features for g in gates)}


def switched_off(most: int, progress: float) -> int:
    """How many channels are off after a share of the shrinking phase, whose end is 3/4 of the training."""
    return round(most * min(max((FULL * progress - RISE) / (FULL - RISE), 0.0), 1.0))
