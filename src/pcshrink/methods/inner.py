"""Gates that work inside a convolution, instead of on what comes out of it."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn

from pcshrink.methods.layers import ConvLayer
from pcshrink.surgery.gate import GATE, BoundForward, Gate


class InnerGate(Gate):
    """Computes a convolution in its own way. It tells which share of the multiply-adds that takes."""

    TELLS: ClassVar[Literal["factor", "work"]] = "work"
    FOLDS: ClassVar[bool] = False

    def connect(self, layer: nn.Module, source: nn.Module) -> None:
        """Stand in for the convolution's own forward pass."""
        layer.forward = BoundForward(layer, _gated_forward)

    def disconnect(self, layer: nn.Module) -> None:
        """Give the convolution its own forward pass back."""
        if getattr(vars(layer).get("forward"), "function", None) is _gated_forward:
            del layer.forward

    def convolve(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        """What the gated convolution makes of x."""
        raise NotImplementedError


def _gated_forward(conv: nn.Conv2d, input: Tensor) -> Tensor:
    gate = conv._modules.get(GATE)
    if not isinstance(gate, InnerGate) or gate.stand_in is not None:
        return type(conv).forward(conv, input)
    out = gate.convolve(conv, input)
    return out * gate.mask[:, None, None].to(out.dtype) if gate.masked else out


def why_not_inside(layer: ConvLayer) -> str | None:
    """Why a convolution cannot be computed in another way; None if it can."""
    conv = layer.conv
    if type(conv) is not nn.Conv2d:
        return f"{type(conv).__name__} is no plain Conv2d"
    if conv.groups != 1:
        return f"it has {conv.groups} groups already"
    if conv.padding_mode != "zeros":
        return f"it pads with {conv.padding_mode}"
    return None if isinstance(conv.weight, nn.Parameter) else "its kernel is computed from other parameters"
