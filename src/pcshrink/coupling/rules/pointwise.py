"""The rule for all point-wise operations, with zeros decided by trying them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcshrink.coupling.rules.core import Call, evaluates_to_zero, rule
from pcshrink.coupling.units import Channels, Flags, Value
from pcshrink.graph.record import operands

# Point-wise, though torch does not tag them so.
UNTAGGED = {"hardswish", "_prelu_kernel", "native_dropout", "log_sigmoid_forward", "dropout", "fill", "hardsigmoid"}


def is_pointwise(name: str, func: Any) -> bool:
    """Whether every output element depends on one element of each operand only."""
    return name in UNTAGGED or torch.Tag.pointwise in func.tags


def pointwise(call: Call) -> Any:
    """Operands meet element by element: tie their channels, and see where zeros stay zeros."""
    values = [call.lookup(t) for t in operands(call.op)]
    out = call.op.out
    if call.name == "native_dropout" and call.arg(2, "train") and not call.training:
        call.pin_all(f"{call.label} draws a random number for every channel, also in evaluation mode")
        values = [Value(v.shape) for v in values]
    first = out if isinstance(out, Tensor) else out[0]
    shape = tuple(first.shape)
    axes = {}
    for axis in range(len(shape)):
        channels = _meet(call, values, axis - len(shape), shape[axis])
        if channels is not None:
            axes[axis] = channels
    full = [v for v in values if v.shape == shape]  # a bias or a scale beside it changes nothing
    origin = full[0].origin if len(full) == 1 else None
    result = Value(shape, axes, origin)
    if isinstance(out, Tensor):
        return result
    return [result, *[Value(tuple(t.shape)) if isinstance(t, Tensor) else Value(()) for t in out[1:]]]


def _meet(call: Call, values: list[Value], axis: int, size: int) -> Channels | None:
    """One axis, counted from the end since operands broadcast from there."""
    here = [v.at(axis) if -axis <= len(v.shape) else None for v in values]
    wide = [-axis <= len(v.shape) and v.shape[axis] == size for v in values]
    known = [c for c, w in zip(here, wide, strict=True) if c is not None and w]
    if not known:
        return None
    fixed = f"{call.label} joins them with a tensor of fixed width"
    if any(w and c is None for c, w in zip(here, wide, strict=True)):
        for channels in known:
            call.ledger.pin(channels.units, fixed)
        return None
    for channels in known[1:]:
        call.ledger.tie(known[0].units, channels.units, fixed)
    never = np.zeros(size, bool)
    states = np.stack([c.zero if c is not None and w else never for c, w in zip(here, wide, strict=True)])
    zero, used = _zeros(call, states)
    needs = frozenset[Any]().union(*(c.needs for i, c in enumerate(here) if i in used and c is not None))
    why = "" if zero.all() else next((c.why for c in known if c.why), f"{call.label} does not keep zero")
    if any(c.zero.all() for c in known):
        why = f"{call.label} does not keep zero"
    return Channels(known[0].units, zero, needs, why, any(c.heads for c in known))


def _zeros(call: Call, states: Flags) -> tuple[Flags, set[int]]:
    """Where the result is zero for a dead channel, and which operands that relies on (as few as possible)."""
    zero, used = np.zeros(states.shape[1], bool), set[int]()
    alike = (states == states[:, :1]).all()  # nearly always, and sorting columns is slow
    for pattern in states[:, :1].T if alike else np.unique(states, axis=1).T:
        candidates = [frozenset({int(i)}) for i in np.flatnonzero(pattern)]
        if len(candidates) > 1:
            candidates.append(frozenset(int(i) for i in np.flatnonzero(pattern)))
        for relied in candidates:
            if evaluates_to_zero(call, relied):
                zero |= (states == pattern[:, None]).all(axis=0)
                used |= relied
                break
    return zero, used


@rule("glu")
def glu(call: Call) -> Value:
    """Half of the channels gate the other half: pairs leave together."""
    x, axis = call.value(0), call.arg(1, "dim", -1)
    axis %= len(x.shape)
    axes = dict(x.axes)
    if (channels := axes.get(axis)) is not None:
        half = len(channels.units) // 2
        call.ledger.tie(channels.units[:half], channels.units[half:], f"{call.label} pairs fixed channels")
        axes[axis] = channels.take(slice(0, half))
    return Value(tuple(call.op.out.shape), axes, x.origin)


@rule("copy_")
def copy(call: Call) -> Value:
    """Values of one tensor written over another one."""
    target, source = call.value(0), call.value(1)
    axes = {}
    for axis, size in enumerate(target.shape):
        back = axis - len(target.shape)
        old = target.at(axis)
        new = source.at(back) if -back <= len(source.shape) and source.shape[back] == size else None
        fixed = f"{call.label} writes between tensors of different widths"
        if old is not None and new is not None:
            call.ledger.tie(old.units, new.units, fixed)
            axes[axis] = Channels(old.units, new.zero, new.needs, new.why)
        else:
            for channels in (old, new):
                if channels is not None:
                    call.ledger.pin(channels.units, fixed)
    return Value(target.shape, axes)
