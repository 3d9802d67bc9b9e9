"""One small rule for each operation: how the channel axes of its inputs become those of its outputs.

Rules are found by operation name. An operation without a rule is never guessed at: the channels that reach it are
pinned, with its name as the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcshrink.coupling.units import FIXED, AttributeFix, Channels, Ids, Ledger, Origin, Value
from pcshrink.graph.record import Op, is_mutable, operands, short_name


@dataclass
class Call:
    """One recorded operation as a rule sees it: values instead of tensors."""

    op: Op
    name: str
    ledger: Ledger
    lookup: Callable[[Tensor], Value]
    attributes: Mapping[str, Any]  # of the module that runs it
    entered_with: Tensor | None  # the first tensor that module was called with
    training: bool = False

    @property
    def label(self) -> str:
        """The operation and where it runs, for reasons."""
        where = f" in {self.op.module!r}" if self.op.module else ""
        return f"{self.name}{where}"

    def arg(self, position: int, keyword: str, default: object = None) -> Any:
        """An argument by position or keyword."""
        if position < len(self.op.args):
            return self.op.args[position]
        return self.op.kwargs.get(keyword, default)

    def value(self, position: int, keyword: str = "") -> Value:
        """The value of a tensor argument; a value without channels where there is none."""
        tensor = self.arg(position, keyword)
        return self.lookup(tensor) if isinstance(tensor, Tensor) else Value(())

    def pin_all(self, reason: str) -> None:
        """Pin every channel of every input."""
        for tensor in operands(self.op):
            for channels in self.lookup(tensor).axes.values():
                self.ledger.pin(channels.units, reason)


# What modules call the number of groups of a grouped convolution (timm's blurring layers: channels).
GROUP_COUNTS = ("groups", "channels", "num_channels", "dim")

Rule = Callable[[Call], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operations by name; doubles are a programming error."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                message = f"two rules for {name}"
                raise ValueError(message)
            RULES[name] = function
        return function

    return register


def out_shape(call: Call, index: int | None = None) -> tuple[int, ...]:
    """The shape of an output."""
    out = call.op.out if index is None else call.op.out[index]
    return tuple(out.shape)


@rule("clone", "detach", "alias", "_to_copy", "contiguous", "lift_fresh", "lift_fresh_copy", "view_as", "to_dense")
def same(call: Call) -> Value:
    """Values and axes stay as they are."""
    return call.value(0)


@rule("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like", "bernoulli",
      "normal", "uniform", "exponential")  # fmt: skip
def like(call: Call) -> Value:
    """A new tensor as wide as another one: it shrinks along, and zeros are zero."""
    source = call.value(0)
    if torch.Tag.nondeterministic_seeded in call.op.func.tags and not call.training:
        call.pin_all(f"{call.label} draws a random number for every channel, also in evaluation mode")
        return Value(source.shape)
    is_zero = call.name == "zeros_like"
    why = f"{call.label} makes values that are not zero"
    return Value(source.shape, {a: Channels.of(c.units, zero=is_zero, why=why) for a, c in source.axes.items()})


@rule("convolution", "_convolution")
def convolution(call: Call) -> Value:
    """A convolution reads its input channels and writes its output channels."""
    x, weight, bias = call.value(0), call.value(1), call.value(2)
    transposed, groups = bool(call.arg(6, "transposed")), int(call.arg(8, "groups", 1))
    batched = len(x.shape) == len(weight.shape)
    axis = 1 if batched else 0
    out = Value(out_shape(call), {axis: Channels.of(np.full(out_shape(call)[axis], FIXED))})
    w_out, w_in = (weight.at(1), weight.at(0)) if transposed else (weight.at(0), weight.at(1))
    reads = units_of(x.at(axis), x.shape[axis])
    if groups == 1:
        _contract(call, x.at(axis), w_in, x.shape[axis])
        writes = units_of(w_out, out.shape[axis])
    elif transposed:
        call.pin_all(f"{call.label}: a grouped transposed convolution has no rule")
        writes = np.full(out.shape[axis], FIXED)
    else:
        writes = _grouped(call, x.at(axis), w_out, w_in, groups, reads)
    if (shift := bias.at(0)) is not None:
        call.ledger.tie(writes, shift.units, f"{call.label}: a bias of fixed width")
    for other, channels in x.axes.items():
        if other > axis:
            call.ledger.pin(channels.units, f"{call.label} slides over a channel axis")
    _wrote(call, writes, reads, {"out_channels": writes, "in_channels": reads})
    why = f"{call.label} has a gate only at a module output"
    axes = {axis: Channels.of(writes, why=why)}
    if batched and (rows := x.at(0)) is not None:
        axes[0] = rows.broken(why)
    return Value(out.shape, axes, own_origin(call, x, axis))


def _grouped(
    call: Call, x: Channels | None, w_out: Channels | None, w_in: Channels | None, groups: int, reads: Ids
) -> Ids:
    """A grouped convolution loses whole groups where there are many, else the same places of every group."""
    ledger, fixed = call.ledger, f"{call.label}: a grouped convolution beside a tensor of fixed width"
    size_out, size_in = call.op.args[1].shape[0], len(reads) // groups
    writes = units_of(w_out, size_out)
    if groups >= size_in:  # one unit = one group: what goes in and what comes out
        inside = np.broadcast_to(reads.reshape(groups, size_in)[:, :1], (groups, size_in))
        ledger.tie(reads.reshape(groups, size_in), inside, fixed)
        ledger.tie(writes.reshape(groups, -1), inside[:, :1], fixed)
        if w_in is not None:
            ledger.pin(w_in.units, "channels inside a group stay")
        for name in GROUP_COUNTS:
            if type(call.attributes.get(name)) is int and call.attributes[name] == groups:
                call.ledger.fixes.append(AttributeFix(call.op.module, name, inside[:, 0]))
        return writes
    ledger.tie(reads.reshape(groups, size_in), reads.reshape(groups, size_in)[:1], fixed)
    ledger.tie(writes.reshape(groups, -1), writes.reshape(groups, -1)[:1], fixed)
    inner = units_of(w_in, size_in)
    ledger.tie(reads.reshape(groups, size_in), inner[None], fixed)
    if x is not None:
        ledger.require_zero(x, call.label)
    return writes


def units_of(channels: Channels | None, size: int) -> Ids:
    """The units of an axis; all fixed where nothing is known about it."""
    return np.full(size, FIXED) if channels is None else channels.units


def _contract(call: Call, left: Channels | None, right: Channels | None, size: int) -> None:
    """Two axes are summed over together: tie them, and make sure that dead channels add nothing."""
    if left is None and right is None:
        return
    reason = f"{call.label} reads a tensor of fixed width"
    if left is None or right is None:
        channels = left or right
        if channels is not None:
            call.ledger.pin(channels.units, reason)
        return
    call.ledger.tie(left.units, right.units, reason)
    if left.zero.all() or not right.zero.all():
        call.ledger.require_zero(left, call.label)
    else:
        call.ledger.require_zero(right, call.label)


def _wrote(call: Call, writes: Ids, reads: Ids, counts: dict[str, Ids]) -> None:
    module, ledger = call.op.module, call.ledger
    ledger.writers[module] = np.union1d(ledger.writers[module], writes) if module in ledger.writers else writes
    ledger.readers[module] = np.union1d(ledger.readers[module], reads) if module in ledger.readers else reads
    for attribute, units in counts.items():
        if isinstance(call.attributes.get(attribute), int):
            ledger.fixes.append(AttributeFix(module, attribute, units))


def own_origin(call: Call, x: Value, axis: int) -> Origin | None:
    """The layer's own input feeds its gate, provided that it is what the module was called with."""
    entered = call.entered_with
    if entered is None or entered.ndim == 0 or entered.shape[axis] != x.shape[axis]:
        return None
    units = units_of(x.at(axis), x.shape[axis])
    return Origin(call.op.module, axis, units, entered.shape[0], averaged(call.lookup(entered), axis))


def averaged(value: Value, axis: int) -> Ids:
    """The units that a gate takes the mean over when it is fed by one axis of a tensor."""
    others = [c.units for a, c in value.axes.items() if a != axis % len(value.shape)]
    return np.concatenate([np.zeros(0, np.int64), *others])


@rule("mm", "addmm", "bmm", "baddbmm")
def matrix_product(call: Call) -> Value:
    """Rows of the left, columns of the right, summed over what lies between."""
    has_bias = call.name in ("addmm", "baddbmm")
    left, right = call.value(has_bias), call.value(has_bias + 1)
    bias = call.value(0) if has_bias else Value(())
    if (shift := bias.at(-1)) is not None and bias.shape[-1] == right.shape[-1]:
        columns = units_of(right.at(-1), right.shape[-1])
        call.ledger.tie(columns, shift.units, f"{call.label}: a bias of fixed width")
    _contract(call, left.at(-1), right.at(-2), left.shape[-1])
    rank, axes = len(left.shape), {}
    why = f"{call.label} has a gate only at a module output"
    for target, channels in ((rank - 2, left.at(-2)), (rank - 1, right.at(-1))):
        if channels is not None:
            axes[target] = channels.broken(why) if has_bias else channels
    if rank == 3 and (left.at(0) is not None or right.at(0) is not None):
        first, second = left.at(0), right.at(0)
        if first is None or second is None:
            call.ledger.pin(units_of(first or second, 0), f"{call.label} joins heads with a tensor of fixed width")
        else:
            call.ledger.tie(first.units, second.units, f"{call.label} joins heads of fixed number")
            axes[0] = (first if first.zero.all() else second) if not has_bias else first.broken(why)
    origin = None
    if rank == 2:
        writes, reads = units_of(right.at(1), right.shape[1]), units_of(left.at(1), left.shape[1])
        _wrote(call, writes, reads, {"out_features": writes, "in_features": reads, "nf": writes, "nx": reads})
        origin = own_origin(call, left, -1)
    return Value(out_shape(call), axes, origin)


@rule("_softmax", "_log_softmax", "_safe_softmax")
def softmax(call: Call) -> Value:
    """Shares over one axis."""
    x, axis = call.value(0), call.arg(1, "dim")
    axes = {a: c.broken(f"{call.label} gives shares above zero") for a, c in x.axes.items()}
    if (channels := axes.pop(axis % len(x.shape), None)) is not None:
        call.ledger.pin(channels.units, f"{call.label} runs over the channels")
    return Value(x.shape, axes)


def evaluates_to_zero(call: Call, zero: frozenset[int]) -> bool:
    """Whether a point-wise operation gives 0 where these operands are 0, whatever the others are."""
    args = tuple(_form(a) for a in call.op.args)
    kwargs = tuple((k, _form(v)) for k, v in call.op.kwargs.items() if k not in ("device", "memory_format", "out"))
    try:
        return _tried(call.op.func, args, kwargs, zero)
    except TypeError:  # a list cannot be looked up
        return _tried.__wrapped__(call.op.func, args, kwargs, zero)


def _form(arg: object) -> tuple[Any, Any]:
    """An argument's type and value, of a tensor only what kind of numbers it holds."""
    return (Tensor, arg.dtype) if isinstance(arg, Tensor) else (type(arg), arg)


@functools.lru_cache(maxsize=1024)
def _tried(
    func: Any, args: tuple[tuple[Any, Any], ...], kwargs: tuple[tuple[str, tuple[Any, Any]], ...], zero: frozenset[int]
) -> bool:
    counter, generator = 0, torch.Generator().manual_seed(0)

    def stand_in(form: tuple[Any, Any]) -> Any:
        nonlocal counter
        kind, value = form
        if kind is not Tensor:
            return value
        position, counter = counter, counter + 1
        if position in zero:
            return torch.zeros(16, dtype=value)
        if value.is_floating_point:
            return torch.randn(16, generator=generator).to(value)
        return torch.randint(0, 2, (16,), generator=generator).to(value)

    filled = [stand_in(form) for form in args]
    named = {name: stand_in(form) for name, form in kwargs}
    with torch.no_grad():
        out = functional_form(func)(*filled, **named)
    first = out if isinstance(out, Tensor) else out[0]
    return bool((first == 0).all())


def functional_form(func: Any) -> Any:
    """The operation that returns a new tensor, for one that writes into its argument."""
    if not is_mutable(func):
        return func
    name, overload = short_name(func), func._overloadname
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    return getattr(packet, overload, None) or func
