"""Weights that are generated while a network is trained. Methods bring their own kinds; baked, they are plain again.

Like a gate, a generator lives as a child of its layer. The layer keeps its own weight as a parameter that is not
trained, so that plans, shapes and names are those of the plain network; baking writes the generated values into it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.graph.model import named_modules
from pcshrink.surgery.gate import BoundForward

GENERATED = "pcs_generated"  # the name of a generator as a child of its layer


class Generated(nn.Module):
    """Base of what generates the weight of a convolution."""

    def weight(self) -> Tensor:
        """The weight, with its gradient."""
        raise NotImplementedError

    def connect(self, layer: nn.Module) -> None:
        """Let a convolution use the generated weight instead of its own."""
        layer.add_module(GENERATED, self)
        layer.weight.requires_grad_(False)
        layer.forward = BoundForward(layer, _convolve)


def _convolve(layer: Any, x: Tensor) -> Tensor:
    convolved: Tensor = layer._conv_forward(x, getattr(layer, GENERATED).weight(), layer.bias)
    return convolved


def find_generated(model: nn.Module) -> dict[str, Generated]:
    """The generators on a model, by the name of their layer."""
    return {
        name.removesuffix(GENERATED).removesuffix("."): module
        for name, module in named_modules(model)
        if isinstance(module, Generated)
    }


@torch.no_grad()
def generated_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """What the generators on a model give now, by the name of the weight that they stand in for."""
    return {
        f"{name}.weight".removeprefix("."): nn.Parameter(generator.weight().detach())
        for name, generator in find_generated(model).items()
    }


def unplug_(model: nn.Module) -> None:
    """Take all generators off; the layers train the weights that they have themselves."""
    for name in find_generated(model):
        layer: Any = model.get_submodule(name)
        layer._modules.pop(GENERATED)
        del layer.forward
        layer.weight.requires_grad_(True)


@torch.no_grad()
def bake_(model: nn.Module) -> None:
    """Make all generated weights plain and trained ones, in place."""
    own = dict(model.named_parameters())
    for name, weight in generated_weights(model).items():
        own[name].copy_(weight)
    unplug_(model)
