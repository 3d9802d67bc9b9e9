"""Make gates constant and part of their layers, so that none is left."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError
from pcshrink.graph.model import unwrap
from pcshrink.surgery.gates import find_gates, remove_gates_

SCALABLE = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear,
)  # fmt: skip
SCALABLE_BY_NAME = ("torchvision.ops.misc.FrozenBatchNorm2d",)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class ConstantScale:
    """Multiplies by a constant kept as a buffer of the layer, where it cannot be folded into weights."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def after(self, module: nn.Module, args: tuple[object, ...], out: Tensor) -> Tensor:
        """Hook after the layer."""
        return self._scale(module, out)

    def before(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Hook before the layer."""
        return (self._scale(module, args[0]), *args[1:])

    def _scale(self, module: nn.Module, x: Tensor) -> Tensor:
        shape = [1] * x.ndim
        shape[self.axis] = -1
        scale: Tensor = module.pcs_scale  # type: ignore[assignment]
        return x * scale.to(x.dtype).reshape(shape)


def fold(model: nn.Module) -> nn.Module:
    """Give a copy of a gated model in which every gate is replaced by its constant.

    The copy equals the model whose gates multiply by their constants.
    """
    folded = copy.deepcopy(unwrap(model))
    fold_gates_(folded)
    return folded


@torch.no_grad()
def fold_gates_(model: nn.Module) -> None:
    """Replace every gate on the model by constants in its layer.

    Raises:
        ConfigError: A gate chooses anew for every input, so no constant can stand for it.
    """
    for name, gate in find_gates(model).items():
        if not gate.FOLDS:
            message = (
                f"the gate of {name!r} ({gate.kind}) chooses for each input, so it cannot be folded; keep the gates"
            )
            raise ConfigError(message)
    for name, gate in find_gates(model).items():
        layer = model.get_submodule(name)
        scale = gate.constant().repeat_interleave(gate.spec.repeat)
        if bool((scale == 1).all()):
            continue
        if not (_fold_input if gate.spec.at_input else _fold_output)(layer, scale):
            layer.register_buffer("pcs_scale", scale)
            constant = ConstantScale(gate.spec.axis)
            if gate.spec.at_input:
                layer.register_forward_pre_hook(constant.before)
            else:
                layer.register_forward_hook(constant.after)
    remove_gates_(model)


def _owns_weight(layer: nn.Module) -> bool:
    """Whether the weight is kept; one that hooks compute before every use would forget the scale."""
    return isinstance(layer._parameters.get("weight", layer._buffers.get("weight")), Tensor)


def _fold_input(layer: nn.Module, scale: Tensor) -> bool:
    """Scale the columns of a layer that is known to use its weight as it is."""
    if type(layer) not in SCALABLE or not isinstance(layer.weight, Tensor) or getattr(layer, "groups", 1) != 1:
        return False
    if not _owns_weight(layer):
        return False
    layer.weight *= scale.to(layer.weight).reshape([1, -1] + [1] * (layer.weight.ndim - 2))
    return True


def _fold_output(layer: nn.Module, scale: Tensor) -> bool:
    """Scale the layer's own weights if its type is known to allow it."""
    name = f"{type(layer).__module__}.{type(layer).__qualname__}"
    known = type(layer) in (*SCALABLE, *TRANSPOSED) or name in SCALABLE_BY_NAME
    if not known or not isinstance(layer.weight, Tensor) or not _owns_weight(layer):
        return False
    if isinstance(layer, TRANSPOSED) and layer.groups > 1:
        return False
    weight = layer.weight
    shape = [1] * weight.ndim
    shape[1 if isinstance(layer, TRANSPOSED) else 0] = -1
    weight *= scale.to(weight).reshape(shape)
    if isinstance(layer.bias, Tensor):
        layer.bias *= scale.to(layer.bias)
    return True
