"""Put tensors right whose meaning depends on how many others there are, so that the weights that stay do not change.

A layer with weight norm or spectral norm divides by a norm over channels that a cut takes away; a response norm divides
by a mean over them; a standardised filter has its mean taken out. Slicing alone would change what stays.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pcshrink.graph.derived import DerivedWeight, derived_weights
from pcshrink.graph.model import named_modules, named_tensors
from pcshrink.surgery.plan import PrunePlan

ITERATIONS = 20  # of the power method, for the singular vectors of a matrix that lost rows and columns


@torch.no_grad()
def keep_weights_(model: nn.Module, small: nn.Module, plan: PrunePlan) -> None:
    """Give the compact copy the values that make its computed weights parts of the original's.

    Args:
        model: The model before the cut.
        small: Its compact copy, which is changed.
        plan: What was cut.
    """
    for weight in derived_weights(model):
        if weight.raw in plan.tensors:
            whole, part = named_tensors(model), named_tensors(small)
            if weight.kind == "weight norm":
                _keep_gain_(weight, whole, part, plan)
            elif weight.kind == "spectral norm":
                _keep_divisor_(weight, whole, part)
            elif _loses_inputs(weight, plan):
                _bake_(weight, model, part, plan)
    for name, module in named_modules(model):
        scale = plan.tensors.get(f"{name}.weight")
        if scale and type(module).__name__ == "GlobalResponseNorm":
            twin = small.get_submodule(name)
            twin.weight.mul_(len(module.weight) / len(twin.weight))  # type: ignore[arg-type, operator]


def _keep_gain_(weight: DerivedWeight, whole: dict[str, Tensor], part: dict[str, Tensor], plan: PrunePlan) -> None:
    """``g v / |v|``: the norm of fewer columns is smaller, so the gain becomes smaller with it."""
    axis = -1 if weight.axis is None else weight.axis
    before, after = (torch.norm_except_dim(t[weight.raw], 2, axis) for t in (whole, part))
    kept = plan.tensors[weight.raw].get(axis)
    if kept is not None:
        before = before.index_select(axis, torch.tensor(kept, device=before.device))
    part[weight.gain].mul_(after / before)
    part[weight.raw].masked_fill_(after == 0, 1.0)  # a direction for what is zero by its gain


def _keep_divisor_(weight: DerivedWeight, whole: dict[str, Tensor], part: dict[str, Tensor]) -> None:
    """``W / (u W v)``: the divisor is kept by the length of v, until training measures the smaller matrix anew."""
    divisor = whole[weight.left] @ _matrix(weight, whole) @ whole[weight.right]
    matrix, right = _matrix(weight, part), part[weight.right]
    if not right.any():
        right.fill_(1.0)
    for _ in range(ITERATIONS):
        right.copy_(nn.functional.normalize(matrix.T @ (matrix @ right), dim=0))
    part[weight.left].copy_(nn.functional.normalize(matrix @ right, dim=0))
    right.mul_(divisor / (part[weight.left] @ matrix @ right))


def _matrix(weight: DerivedWeight, tensors: dict[str, Tensor]) -> Tensor:
    raw = tensors[weight.raw]
    return raw.movedim(weight.axis or 0, 0).flatten(1)


def make_plain_(small: nn.Module, plan: PrunePlan) -> None:
    """Let standardised convolutions that lost inputs use their weights as they are.

    What stays of a filter has a mean of its own, which standardising would take out; so its weights are baked.
    """
    for weight in derived_weights(small):
        if weight.kind == "weight standardisation" and _loses_inputs(weight, plan):
            layer = small.get_submodule(weight.place)
            layer.__class__ = _plain_class(layer)


def _plain_class(layer: nn.Module) -> type[nn.Module]:
    """The convolution without the standardising, with the same padding."""
    if getattr(layer, "same_pad", False):
        plain: type[nn.Module] = sys.modules["timm.layers.conv2d_same"].Conv2dSame
        return plain
    return nn.Conv2d


def _loses_inputs(weight: DerivedWeight, plan: PrunePlan) -> bool:
    return 1 in plan.tensors.get(weight.raw, {})


def _bake_(weight: DerivedWeight, model: nn.Module, part: dict[str, Tensor], plan: PrunePlan) -> None:
    """The filters as they were used, without what was cut."""
    layer: Any = model.get_submodule(weight.place)
    size = [k * d for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    with _CatchFilters() as caught:
        type(layer).forward(layer, layer.weight.new_zeros(1, layer.in_channels, *size))
    used = caught.filters
    for axis, kept in plan.tensors[weight.raw].items():
        used = used.index_select(axis, torch.tensor(kept, device=used.device))
    part[weight.raw].copy_(used)


class _CatchFilters(TorchDispatchMode):
    """Sees the filters that a convolution really uses."""

    filters: Tensor

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.filters = args[1]
        return func(*args, **kwargs or {})
