"""Weights that are computed from others before every use: weight norm, spectral norm, weight standardisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from pcshrink.graph.model import named_modules

Kind = Literal["weight norm", "spectral norm", "weight standardisation"]
PARAMETRISATIONS: dict[str, Kind] = {
    "torch.nn.utils.parametrizations._WeightNorm": "weight norm",
    "torch.nn.utils.parametrizations._SpectralNorm": "spectral norm",
}
# Convolutions that take mean and deviation of every filter out of it; without that they are plain ones.
STANDARDISED = (
    *(f"timm.layers.std_conv.{n}" for n in ("StdConv2d", "StdConv2dSame", "ScaledStdConv2d", "ScaledStdConv2dSame")),
    "transformers.models.bit.modeling_bit.WeightStandardizedConv2d",
)


@dataclass(frozen=True)
class DerivedWeight:
    """One computed weight; the tensors it is made of by their full names.

    Attributes:
        kind: How it is computed.
        place: The module that computes it: the parametrisation, the layer that carries the hook, or the layer itself.
        weight: Name of the attribute that holds the result on the layer.
        axis: The axis that is normalised index by index; ``None`` where the whole tensor has one norm.
        raw: The tensor that is normalised.
        gain: What it is multiplied by.
        left: Spectral norm's estimate of the first left singular vector.
        right: Its estimate of the right one.
    """

    kind: Kind
    place: str
    weight: str
    axis: int | None
    raw: str
    gain: str = ""
    left: str = ""
    right: str = ""


def derived_weights(model: nn.Module) -> list[DerivedWeight]:
    """All weights of a model that are computed in a known way, and that nothing else changes."""
    ways = (_parametrised, _hooked, _standardised)
    modules = [(n, m) for n, m in named_modules(model) if not isinstance(m, torch.jit.ScriptModule)]
    return [d for name, module in modules for way in ways for d in way(name, module)]


def stored_as(layer: str) -> tuple[str, ...]:
    """The names under which the weight of a layer may be kept: as it is, or as what it is computed from."""
    endings = ("weight", "weight_v", "weight_orig", "parametrizations.weight.original1")
    return tuple(f"{layer}.{end}".removeprefix(".") for end in (*endings, "parametrizations.weight.original"))


def _parametrised(layer: str, module: nn.Module) -> Iterator[DerivedWeight]:
    lists: Any = module._modules.get("parametrizations")
    for weight, steps in lists.items() if isinstance(lists, nn.ModuleDict) else ():
        first: Any = steps[0]  # type: ignore[index]
        kind = PARAMETRISATIONS.get(f"{type(first).__module__}.{type(first).__qualname__}")
        prefix = f"{layer}.parametrizations.{weight}".removeprefix(".")
        place = f"{prefix}.0"
        if kind == "weight norm":
            axis = None if first.dim == -1 else int(first.dim)
            raw, gain = f"{prefix}.original1", f"{prefix}.original0"
            yield DerivedWeight(kind, place, weight, axis, raw, gain)
        elif kind == "spectral norm" and hasattr(first, "_u"):
            names = {"left": f"{place}._u", "right": f"{place}._v"}
            yield DerivedWeight(kind, place, weight, int(first.dim), f"{prefix}.original", **names)


def _hooked(layer: str, module: nn.Module) -> Iterator[DerivedWeight]:
    hooks = weight_hooks(module)
    if len(hooks) != len([h for h in module._forward_pre_hooks.values() if not _is_ours(h)]):
        return  # another hook may change the result
    for hook in hooks:
        prefix = f"{layer}.{hook.name}".removeprefix(".")
        if isinstance(hook, WeightNorm):
            axis = None if hook.dim == -1 else hook.dim
            yield DerivedWeight("weight norm", layer, hook.name, axis, f"{prefix}_v", f"{prefix}_g")
        else:
            names = {"left": f"{prefix}_u", "right": f"{prefix}_v"}
            yield DerivedWeight("spectral norm", layer, hook.name, hook.dim, f"{prefix}_orig", **names)


def _standardised(layer: str, module: nn.Module) -> Iterator[DerivedWeight]:
    known = f"{type(module).__module__}.{type(module).__qualname__}" in STANDARDISED
    if known and "pad" not in module._modules:  # a padding that depends on the input would be lost with the class
        gain = f"{layer}.gain".removeprefix(".") if "gain" in module._parameters else ""
        yield DerivedWeight("weight standardisation", layer, "weight", 0, f"{layer}.weight".removeprefix("."), gain)


def weight_hooks(module: nn.Module) -> list[WeightNorm | SpectralNorm]:
    """The hooks on a module that compute one of its weights."""
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, (WeightNorm, SpectralNorm))]


def _is_ours(hook: object) -> bool:
    """Hooks of gates and recorders read or scale the input and never touch the weights."""
    source = getattr(hook, "__module__", None) or type(hook).__module__
    return str(source).startswith("pcshrink.")
