"""Low-cost collaborative layers: a tiny branch says at which positions a convolution need not run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.methods.base import Step
from pcshrink.methods.dynamic import Dynamic
from pcshrink.methods.layers import ConvLayer
from pcshrink.methods.reading import ReadingGate
from pcshrink.methods.recording import Recording
from pcshrink.surgery.gate import Axes, Gate, GateSpec
from pcshrink.surgery.plan import GateSite


@dataclass(frozen=True, kw_only=True)
class MILConfig(MethodConfig):
    """Settings of low-cost collaborative layers; ``ratio`` has no effect.

    Attributes:
        sparsity: Weight of the branches' mean output, summed over layers: an extension that the source does not have,
            off by default. The higher, the more positions are skipped.
        bias: Where the branches' outputs start from: at 0 half of all positions are skipped from the beginning.
    """

    method: ClassVar[str] = "mil"

    sparsity: float = 0.0
    bias: float = 0.0

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        self.check(is_number(self.bias), "bias", self.bias, "a number")
        self.check(is_number(self.sparsity) and self.sparsity >= 0, "sparsity", self.sparsity, "a number of at least 0")


class MILGate(Recording[Tensor], ReadingGate, kind="mil"):
    """Multiplies all channels of a position by what a branch makes of the layer's input there.

    Attributes:
        recorded: The branch's output of the newest training pass, call by call.
    """

    AXES: ClassVar[Axes] = {"mask": {0: "own"}, "branch.weight": {1: "fed"}}
    FOLDS: ClassVar[bool] = False

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.branch = nn.Conv2d(spec.in_features, 1, 1, int(spec.settings["stride"]), bias=False)
        self.norm = nn.BatchNorm2d(1)
        nn.init.constant_(self.norm.bias, float(spec.settings["bias"]))

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        """The shape of each tensor that has own or fed channels."""
        return {"mask": [spec.channels], "branch.weight": [1, spec.in_features, 1, 1]}

    def forward(self, x: Tensor) -> Tensor:
        """The branch: (B, C_in, H, W) -> (B, 1, H', W'), not below 0."""
        return F.relu(self.norm(self.branch(x)))

    def read(self, x: Tensor) -> Tensor:
        """What the branch makes of it; x itself need not be kept."""
        mask: Tensor = self(x)
        return mask

    def factor(self, x: Tensor) -> Tensor:
        """The same for all channels of a position."""
        factor = self.reading()
        if self.training:
            self.record(factor)
        return factor * self.mask[:, None, None] if self.masked else factor


class MIL(Dynamic[MILConfig]):
    """More is less: a low-cost collaborative layer beside each convolution says which positions need not be computed.

    out = norm(conv(x)) ReLU(norm_1(conv_1x1(x))), the second factor one number for each position, with the
    convolution's stride. Where it is zero, the convolution need not run: a layer costs the share of positions that
    are not zero, plus the branch. There is no term for sparsity in the loss, and so no budget. Stem and shortcuts have
    no branch; of the other 1 x 1 convolutions only those have one that end a block.

    Departures: the source has norms before its convolutions, and multiplies the plain conv(x). In networks that have
    them behind, the product comes after the norm, whose statistics are those of all positions. ``sparsity`` is
    an extension for a curve of points.
    """

    Config: ClassVar[type[MethodConfig]] = MILConfig
    Gate: ClassVar[type[Gate]] = MILGate
    unit: ClassVar[str] = "position, for each input"
    starts_from: ClassVar[str] = "nothing"
    budget_by: ClassVar[str] = "none; set shrink.sparsity"
    without_widths: ClassVar[str] = "it skips positions; remove shrink.like, raise shrink.sparsity"
    reference: ClassVar[str] = (
        "Dong et al., More is Less: A More Complicated Network with Less Inference Complexity, CVPR 2017"
    )

    def unfit(self, layer: ConvLayer) -> str | None:
        """Why a layer has no branch."""
        if layer.stem:
            return "method mil gates no layer that reads the network's input"
        if layer.shortcut:
            return "method mil gates no shortcut"
        conv = layer.conv
        if not isinstance(conv, nn.Conv2d):
            return f"method mil gates positions of images; this is a {type(conv).__name__}"
        if layer.pointwise and not layer.summed:
            return "method mil gates 1 x 1 convolutions only where they end a block"
        centred = isinstance(conv.padding, tuple) and all(
            2 * padding == spread * (size - 1)
            for padding, spread, size in zip(conv.padding, conv.dilation, conv.kernel_size, strict=True)
        )
        if not (centred or conv.padding == "same") or len(set(conv.stride)) > 1:
            return "its output positions are not those of its input, or its stride is not square"
        return None

    def place(self, layer: ConvLayer) -> GateSite:
        """With the stride of the convolution."""
        entry = super().place(layer)
        settings = {"stride": int(layer.conv.stride[0]), "bias": float(self.config.bias)}
        return entry._replace(spec=replace(entry.spec, kind=MILGate.kind, settings=settings))

    @property
    def mil_gates(self) -> dict[str, MILGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, MILGate)}

    def loss(self, step: Step | None = None) -> Tensor | None:
        """The mean of the branches, where it is asked for."""
        recorded = [factor for gate in self.mil_gates.values() for factor in gate.recorded]
        if not recorded or not self.config.sparsity:
            return None
        return self.config.sparsity * torch.stack([factor.mean() for factor in recorded]).sum()
