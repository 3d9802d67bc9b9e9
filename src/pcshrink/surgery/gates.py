"""Put gates on a model and take them off again. Hooks do the work, so every original name stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from pcshrink.graph.model import named_modules, named_tensors
from pcshrink.surgery.attention import adapt_, owner_of, restore_
from pcshrink.surgery.gate import GATE, Gate, GateSpec, gate_class
from pcshrink.surgery.generated import bake_


class GateList:
    """Tells all gates when the whole model starts a training forward pass."""

    def __init__(self, gates: Iterable[Gate]) -> None:
        self.gates = list(gates)

    def start(self, module: nn.Module, args: tuple[object, ...]) -> None:
        """Hook before the whole model."""
        if module.training:
            for gate in self.gates:
                gate.start_pass()


def find_gates(model: nn.Module) -> dict[str, Gate]:
    """The gates on a model, by the name of the layer they sit on."""
    return {
        name.removesuffix(GATE).removesuffix("."): module
        for name, module in named_modules(model)
        if isinstance(module, Gate)
    }


def add_gates_(model: nn.Module, specs: Iterable[GateSpec]) -> dict[str, Gate]:
    """Build gates and put them on the model; those that are there already are kept."""
    present = find_gates(model)
    with torch.random.fork_rng(devices=[]):  # the user's own draws stay as they would be without gates
        for spec in specs:
            if spec.module not in present:
                layer = model.get_submodule(spec.module)
                gate = gate_class(spec.kind)(spec)
                _settle_(gate, layer, model)
                present[spec.module] = gate
                layer.add_module(GATE, gate)
                if spec.at_input:
                    adapt_(owner_of(model, spec.module))
                gate.connect(layer, model.get_submodule(spec.source))
    _watch_(model, present)
    return present


def _watch_(model: nn.Module, gates: Mapping[str, Gate]) -> None:
    _remove_hooks(model, GateList)
    model.register_forward_pre_hook(GateList(gates.values()).start)


def _settle_(gate: Gate, layer: nn.Module, model: nn.Module) -> None:
    """Bring a gate to where its layer is, into its type and its mode; going through all its parts is slow."""
    kind = _kind_of(layer, model)
    if any((t.device, t.dtype) != tuple(kind.values()) for t in named_tensors(gate).values() if t.is_floating_point()):
        gate.to(**kind)
    if not layer.training:
        gate.eval()


def _kind_of(layer: nn.Module, model: nn.Module) -> dict[str, Any]:
    """Device and type for a gate: as the layer's weights, but never narrower than float32."""
    tensor = next((p for m in (layer, model) for p in m.parameters() if p.is_floating_point()), torch.zeros(()))
    dtype = tensor.dtype if tensor.dtype == torch.float64 else torch.float32
    return {"device": tensor.device, "dtype": dtype}


def remove_gates_(model: nn.Module) -> None:
    """Take all gates and hooks off and make generated weights plain; the state_dict has its original keys again."""
    bake_(model)
    for module in list(model.modules()):
        _remove_hooks(module, (Gate, GateList))
        gate = module._modules.pop(GATE, None)
        if isinstance(gate, Gate):
            gate.disconnect(module)
        restore_(module)


def _remove_hooks(module: nn.Module, owners: type | tuple[type, ...]) -> None:
    tables = (module._forward_hooks, module._forward_pre_hooks)
    flags = (module._forward_hooks_with_kwargs, module._forward_pre_hooks_with_kwargs)
    for table, flag in zip(tables, flags, strict=True):
        for key in [k for k, hook in table.items() if isinstance(getattr(hook, "__self__", None), owners)]:
            table.pop(key)
            flag.pop(key, None)
    for key in [k for k in module._forward_hooks_always_called if k not in module._forward_hooks]:
        module._forward_hooks_always_called.pop(key)
