"""Walk a recording: carry what is known about channels through every operation."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.coupling import rules  # noqa: F401 - importing them registers them
from pcshrink.coupling.rules.core import RULES, Call, averaged
from pcshrink.coupling.rules.pointwise import is_pointwise, pointwise
from pcshrink.coupling.rules.whole import WholeCall, WholeRule, derive, find_whole
from pcshrink.coupling.units import FIXED, Ledger, Origin, Site, Value
from pcshrink.graph.derived import DerivedWeight, derived_weights
from pcshrink.graph.foreign import is_inside, scripted_parts
from pcshrink.graph.model import first_line, is_linear, named_modules, named_tensors, tensors
from pcshrink.graph.record import Graph, Op, is_mutable, operands, short_name

log = logging.getLogger(__name__)
SCRIPTED = "is scripted or traced by torch.jit and cannot be cut; shrink first, then script"


class Walk:
    """Carries channel knowledge through a recording, operation by operation."""

    def __init__(self, model: nn.Module, ledger: Ledger, *, reads_input: bool = True) -> None:
        self.model, self.reads_input = model, reads_input
        self.ledger = ledger
        self.modules = dict(named_modules(model))
        self.values: dict[int, Value] = {}
        self.named: dict[str, Value] = {}
        self.tensors = list(named_tensors(model).items())  # held, since their ids are the keys
        for name, tensor in self.tensors:
            self.values[id(tensor)] = self.named[name] = ledger.parameter(name, tensor)
        self.own_ids = set(self.values)
        self.derived: dict[str, list[DerivedWeight]] = {}
        for weight in derived_weights(model):
            self.derived.setdefault(weight.place, []).append(weight)
        self.made_of_weights: set[int] = set()
        self.scripted = scripted_parts(model)
        for name, value in self.named.items():
            if is_inside(name, self.scripted):
                for channels in value.axes.values():
                    ledger.pin(channels.units, f"{name!r} {SCRIPTED}")
        self.training = False
        # nothing is walked until this module is entered, or left (True); then this goes on
        self.skipped: tuple[str, bool, Callable[[Op], None]] | None = None
        self.aliases: dict[int, list[Tensor]] = {}
        self.entered: dict[str, tuple[Tensor, Value] | None] = {}
        self.wrote: set[str] = set()
        self.overridden: dict[str, tuple[int, Value]] = {}

    def adopt(self, copy: nn.Module) -> None:
        """Know the parameters of a copy as those of the model itself."""
        for name, tensor in named_tensors(copy).items():
            self.values[id(tensor)] = self.named[name]
            self.own_ids.add(id(tensor))

    def lookup(self, tensor: Tensor) -> Value:
        """What is known about a tensor."""
        return self.values.get(id(tensor)) or Value(tuple(tensor.shape))

    def follow(self, graph: Graph) -> None:
        """Apply every operation, then pin what the network returns."""
        self.training = graph.training
        for op in graph.ops:
            if self.skipped is None:
                self._take(op)
            elif op.func is None and not op.hooks and (op.module, op.leaving) == self.skipped[:2]:
                resume, self.skipped = self.skipped[2], None
                resume(op)
        for tensor in tensors(graph.outputs):
            for channels in self.lookup(tensor).axes.values():
                self.ledger.pin(channels.units, "network output")

    def _take(self, op: Op) -> None:
        if op.func is not None:
            self._apply(op)
        elif op.leaving:
            self._leave(op)
        elif op.module in self.derived and (op.hooks or _is_parametrisation(op.module)):
            self.skipped = (op.module, not op.hooks, self._derived)
        elif not op.hooks and not _is_parametrisation(op.module):
            self._enter(op)

    def _derived(self, op: Op) -> None:
        """A parametrisation or the hooks of a layer have computed its weights."""
        for weight in self.derived[op.module]:
            made = op.out if op.leaving else op.out[weight.weight]
            self.values[id(made)] = derive(self.ledger, self.named, weight)
        if not op.leaving:
            self._enter(op)

    def _enter(self, op: Op) -> None:
        module = self.modules.get(op.module)
        if (rule := find_whole(module, op.args)) is not None:
            self.skipped = (op.module, True, functools.partial(self._whole, rule, op))
        inputs = list(op.args[:1]) if op.args and isinstance(op.args[0], Tensor) else tensors((op.args, op.kwargs))
        self.entered[op.module] = (inputs[0], self.lookup(inputs[0])) if inputs else None
        self.wrote.discard(op.module)
        if inputs and (is_linear(module) or isinstance(module, nn.modules.conv._ConvNd)):
            self._gate_heads(op.module, inputs[0])

    def _whole(self, rule: WholeRule, entered: Op, op: Op) -> None:
        """A module with a rule of its own has run."""
        module = self.modules[op.module]
        value = rule(WholeCall(op.module, module, entered.args, entered.kwargs, op.out, self.ledger, self.lookup))
        if value is not None:
            self.values[id(op.out)] = value
        self._leave(op)

    def _gate_heads(self, module: str, tensor: Tensor) -> None:
        """Heads leave attention in the middle of a module, so their gate sits at the input of the next layer."""
        value = self.lookup(tensor)
        for axis, channels in value.axes.items():
            if channels.heads and not channels.zero.all() and Site(module) not in self.ledger.gates:
                site = Site(module, at_input=True)
                if self._open_site(site, value, axis):
                    self.overridden[module] = (id(tensor), value)
                    self.values[id(tensor)] = value.with_axes(value.axes | {axis: channels.gated(site)})

    def _open_site(self, site: Site, value: Value, axis: int) -> bool:
        origin = value.origin
        if origin is None or origin.batch != value.shape[0] or axis == 0:
            origin = self._own_input(site.module, value.shape[0])
        if origin is None or axis == 0:
            return False
        if self.reads_input:
            self.ledger.averaged.append((site, origin.averaged))
        from_end = is_linear(self.modules.get(site.module)) or axis != 1
        self.ledger.gates.setdefault(site, (value.axes[axis].units, axis - len(value.shape) if from_end else 1, origin))
        return True

    def _own_input(self, module: str, batch: int) -> Origin | None:
        entered = self.entered.get(module)
        if entered is None or len(entered[1].shape) < 2 or entered[1].shape[0] != batch:
            return None
        value = entered[1]
        last = is_linear(self.modules.get(module)) or len(value.shape) == 3
        axis = next(iter(value.axes), len(value.shape) - 1 if last else 1)
        channels = value.at(axis)
        units = np.full(value.shape[axis], FIXED) if channels is None else channels.units
        axis_of_any_rank = axis if axis == 1 else axis - len(value.shape)
        return Origin(module, axis_of_any_rank, units, batch, averaged(value, axis))

    def _leave(self, op: Op) -> None:
        """A layer's output is a place for a gate, from where on dead channels are zero."""
        if op.module in self.overridden:
            key, before = self.overridden.pop(op.module)
            self.values[key] = before
        if not isinstance(op.out, Tensor) or not (op.module in self.wrote or self._owns_tensors(op.module)):
            return
        if _is_parametrisation(op.module) or is_inside(op.module, self.scripted):
            return
        value, site = self.lookup(op.out), Site(op.module)
        if not value.axes or replace(site, at_input=True) in self.ledger.gates:  # one gate for each module
            return
        written = len(value.shape) - 1 if is_linear(self.modules.get(op.module)) else 1
        axis = written if written in value.axes else next(iter(value.axes))
        channels = value.axes[axis]
        if not channels.zero.all() and not channels.heads and self._open_site(site, value, axis):
            self.values[id(op.out)] = value.with_axes(value.axes | {axis: channels.gated(site)})

    def _owns_tensors(self, name: str) -> bool:
        """All parameters and buffers below it are its own, as in a frozen norm or an activation with a learned shift.

        It may not map 0 to 0, so a gate goes after it.
        """
        module = self.modules.get(name)
        if module is None or not (module._parameters or module._buffers):
            return False
        children = [child for child in module._modules.values() if child is not None]
        return not any(True for child in children for _ in (*child.parameters(), *child.buffers()))

    def _apply(self, op: Op) -> None:
        if self._computes_weight(op):
            return
        raw = short_name(op.func)
        name = raw if raw in RULES else raw.removesuffix("_") if is_mutable(op.func) else raw
        module = self.modules.get(op.module)
        entered = self.entered.get(op.module)
        attributes = vars(module) if module is not None else {}
        call = Call(op, name, self.ledger, self.lookup, attributes, entered[0] if entered else None, self.training)
        if name in ("convolution", "addmm", "mm", "native_group_norm") or "batch_norm" in name:
            self.wrote.add(op.module)
        self._store(op, self._result(call))

    def _computes_weight(self, op: Op) -> bool:
        """Inside a layer that standardises its weight: all that is made of parameters alone leads to that weight."""
        weight = next((w for w in self.derived.get(op.module, ()) if w.kind == "weight standardisation"), None)
        if weight is None:
            return False
        if op.func is torch.ops.aten.convolution.default:
            self.values[id(op.args[1])] = derive(self.ledger, self.named, weight)
            return False
        if not all(id(t) in self.own_ids or id(t) in self.made_of_weights for t in operands(op)):
            return False
        self.made_of_weights |= {id(t) for t in (op.out if isinstance(op.out, (list, tuple)) else [op.out])}
        return True

    def _result(self, call: Call) -> Value | list[Value] | None:
        rule = RULES.get(call.name) or (pointwise if is_pointwise(call.name, call.op.func) else None)
        if rule is None:
            call.pin_all(f"operation {call.op.func._schema.name} in {call.op.module!r} has no rule")
            return None
        try:
            result: Value | list[Value] | None = rule(call)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError) as error:
            # a call that a rule was not written for: what reaches it stays, and the proof covers the rest
            log.debug("the rule of %s failed", call.label, exc_info=True)
            call.pin_all(f"the rule of {call.label} does not cover this call ({first_line(error)})")
            return None
        return result

    def _store(self, op: Op, result: Value | list[Value] | None) -> None:
        if result is None:
            return
        outs = list(op.out) if isinstance(op.out, (list, tuple)) else [op.out]
        for tensor, value in zip(outs, [result] if isinstance(result, Value) else result, strict=False):
            if not isinstance(tensor, Tensor):
                continue
            single = {a: c for a, c in value.axes.items() if value.shape[a] > 1}
            for axis, channels in value.axes.items():
                if axis not in single:
                    self.ledger.pin(channels.units, "a single channel cannot leave")
            self.values[id(tensor)] = value.with_axes(single)
            self._mark_aliases(op, tensor, self.values[id(tensor)])

    def _mark_aliases(self, op: Op, tensor: Tensor, value: Value) -> None:
        """A write into a view also changes the tensors that share its memory."""
        if not tensor.numel():
            return
        family = self.aliases.setdefault(tensor.untyped_storage().data_ptr(), [])
        if is_mutable(op.func) and not all(c.zero.all() for c in value.axes.values()):
            for other in family:
                if other is not tensor and (known := self.values.get(id(other))) is not None:
                    why = f"{op.func._schema.name} in {op.module!r} writes into a view"
                    axes = {a: c.broken(why) for a, c in known.axes.items()}
                    self.values[id(other)] = known.with_axes(axes)
        if all(other is not tensor for other in family):
            family.append(tensor)


def _is_parametrisation(module: str) -> bool:
    """Whether a module computes a weight rather than features."""
    return "parametrizations" in module.split(".")
