"""Rules for operations that only move elements: views, permutations, slices, concatenations, pooling, reductions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from pcshrink.coupling.rules.core import Call, out_shape, rule
from pcshrink.coupling.rules.heads import free_axis, merged_widths
from pcshrink.coupling.units import FIXED, Channels, Value


def _keep(x: Value, shape: tuple[int, ...], moved: dict[int, int]) -> Value:
    """The same channels on other axes; ``moved`` maps old axes to new ones."""
    return Value(shape, {moved[a]: c for a, c in x.axes.items() if a in moved}, x.origin)


def _lost(call: Call, x: Value, axes: Iterable[int], reason: str) -> None:
    for axis in axes:
        if (channels := x.axes.get(axis)) is not None:
            call.ledger.pin(channels.units, f"{call.label} {reason}")


@rule("permute")
def permute(call: Call) -> Value:
    """Axes in another order."""
    x = call.value(0)
    order = [d % len(x.shape) for d in call.arg(1, "dims")]
    return _keep(x, out_shape(call), {old: new for new, old in enumerate(order)})


@rule("transpose", "t")
def transpose(call: Call) -> Value:
    """Two axes change places."""
    x, rank = call.value(0), len(call.value(0).shape)
    first, second = (0, rank - 1) if call.name == "t" else (call.arg(1, "dim0") % rank, call.arg(2, "dim1") % rank)
    order = {a: a for a in range(rank)} | {first: second, second: first}
    return _keep(x, out_shape(call), order)


@rule("unsqueeze")
def unsqueeze(call: Call) -> Value:
    """A new axis of size 1."""
    x, shape = call.value(0), out_shape(call)
    new = call.arg(1, "dim") % len(shape)
    return _keep(x, shape, {a: a + (a >= new) for a in range(len(x.shape))})


@rule("squeeze")
def squeeze(call: Call) -> Value:
    """Axes of size 1 go; a channel axis has more than one index."""
    x, shape = call.value(0), out_shape(call)
    given = call.arg(1, "dim", list(range(len(x.shape))))
    dims = {d % len(x.shape) for d in (given if isinstance(given, (list, tuple)) else [given])}
    kept = [a for a in range(len(x.shape)) if a not in dims or x.shape[a] != 1]
    return _keep(x, shape, {a: i for i, a in enumerate(kept)})


@rule("expand")
def expand(call: Call) -> Value:
    """Axes of size 1 are repeated without copying, and new ones come in front."""
    x, shape = call.value(0), out_shape(call)
    return _keep(x, shape, {a: a + len(shape) - len(x.shape) for a in range(len(x.shape))})


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "reshape_as", "flatten", "unflatten")
def view(call: Call) -> Value:
    """The same elements in another shape: axes merge and split in runs of equal size."""
    x, shape = call.value(0), out_shape(call)
    axes: dict[int, Channels] = {}
    for old, new in _runs(x.shape, shape):
        inside = [a for a in old if a in x.axes]
        if len(inside) > 1:
            _lost(call, x, inside, "merges two channel axes")
        elif inside:
            size = [x.shape[a] for a in old]
            pattern = [-1 if a == inside[0] else 1 for a in old]
            split = _split(call, x.axes[inside[0]], pattern, size, [shape[b] for b in new])
            axes |= {new[position]: channels for position, channels in split.items()}
    return Value(shape, axes, x.origin)


def _runs(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Match the axes of two shapes in the shortest runs whose sizes multiply to the same number."""
    runs, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        left, right, a, b = [], [], 1, 1
        while True:
            if a <= b and i < len(old):
                left.append(i)
                a *= old[i]
                i += 1
            elif j < len(new):
                right.append(j)
                b *= new[j]
                j += 1
            else:
                break
            if a == b and left and right:
                break
        runs.append((left, right))
    return runs


def _split(
    call: Call, channels: Channels, pattern: list[int], size: list[int], target: list[int]
) -> dict[int, Channels]:
    """Lay the channels of one axis out over new axes; at most one of them may stay free."""
    units = np.broadcast_to(channels.units.reshape(pattern), size).reshape(target)
    zero = np.broadcast_to(channels.zero.reshape(pattern), size).reshape(target)
    varying = [a for a in range(units.ndim) if (units != units.take([0], axis=a)).any()]
    if not varying:
        reason = f"{call.label} ties all channels of the axis together, so none can leave alone"
        call.ledger.pin(channels.units[:1], reason)
        return {}
    free, heads = free_axis(call, units, varying)
    others = tuple(a for a in range(units.ndim) if a != free)
    first = units.transpose([free, *others]).reshape(units.shape[free], -1)[:, 0]
    if len(varying) > 1:
        column = first.reshape([-1 if a == free else 1 for a in range(units.ndim)])
        call.ledger.tie(units.ravel(), np.broadcast_to(column, units.shape).ravel(), f"{call.label} splits channels")
    if channels.heads and sum(n > 1 for n in target) == 1 < sum(n > 1 for n in size):
        merged_widths(call, first)
    result = replace(channels, units=first, zero=np.asarray(zero.all(axis=others)), heads=channels.heads or heads)
    return {free: result.broken("the heads' outputs") if heads else result}


@rule("select", "unbind")
def select(call: Call) -> Any:
    """One index of an axis, or each in turn."""
    x = call.value(0)
    axis = call.arg(1, "dim", 0) % len(x.shape)
    _lost(call, x, [axis], "takes out single channels by number")
    moved = {a: a - (a > axis) for a in range(len(x.shape)) if a != axis}
    if isinstance(call.op.out, Tensor):
        return _keep(x, out_shape(call), moved)
    return [_keep(x, tuple(t.shape), moved) for t in call.op.out]


@rule("cat", "stack")
def cat(call: Call) -> Value:
    """Tensors end to end (or on top of each other along a new axis)."""
    values = [call.lookup(t) for t in call.op.args[0]]
    values = [v for v in values if v.shape != (0,)]
    shape, joined = out_shape(call), call.arg(1, "dim", 0)
    joined %= len(shape)
    if call.name == "stack":
        values = [_keep(v, shape, {a: a + (a >= joined) for a in range(len(v.shape))}) for v in values]
    axes: dict[int, Channels] = {}
    for axis in range(len(shape)):
        parts = [v.axes.get(axis) for v in values]
        if all(p is None for p in parts):
            continue
        if axis == joined and call.name == "cat":
            axes[axis] = _concatenate(parts, [v.shape[axis] for v in values])
        else:
            axes |= _alike(call, parts, axis)
    return Value(shape, axes)


def _concatenate(parts: list[Channels | None], sizes: list[int]) -> Channels:
    full = [p or Channels.of(np.full(n, FIXED), zero=True) for p, n in zip(parts, sizes, strict=True)]
    return Channels(
        np.concatenate([p.units for p in full]),
        np.concatenate([p.zero for p in full]),
        frozenset[Any]().union(*(p.needs for p in full)),
        next((p.why for p in full if not p.zero.all()), ""),
    )


def _alike(call: Call, parts: list[Channels | None], axis: int) -> dict[int, Channels]:
    known = [p for p in parts if p is not None]
    for part in known[1:]:
        call.ledger.tie(known[0].units, part.units, f"{call.label} joins tensors of fixed width")
    if len(known) < len(parts):
        call.ledger.pin(known[0].units, f"{call.label} joins them with a tensor of fixed width")
        return {}
    zero = np.logical_and.reduce([p.zero for p in known])
    needs = frozenset[Any]().union(*(p.needs for p in known))
    return {axis: replace(known[0], zero=zero, needs=needs, heads=any(p.heads for p in known))}


@rule("repeat", "tile")
def repeat(call: Call) -> Value:
    """Whole copies along axes, new axes in front."""
    x, shape, times = call.value(0), out_shape(call), list(call.arg(1, "repeats"))
    extra = len(shape) - len(x.shape)
    axes = {a + extra: c.take(np.tile(np.arange(len(c.units)), times[a + extra])) for a, c in x.axes.items()}
    return Value(shape, axes, x.origin)


@rule("roll", "flip")
def roll(call: Call) -> Value:
    """Elements move along axes; a channel axis must stay where it is."""
    x = call.value(0)
    dims = call.arg(2 if call.name == "roll" else 1, "dims", [])
    moved = [d % len(x.shape) for d in ([dims] if isinstance(dims, int) else dims)] or list(range(len(x.shape)))
    _lost(call, x, moved, "moves channels to other places")
    return Value(x.shape, {a: c for a, c in x.axes.items() if a not in moved}, x.origin)


@rule("index")
def index(call: Call) -> Value:
    """Look-up by index tensors, such as a table of position biases."""
    x, shape, indices = call.value(0), out_shape(call), list(call.arg(1, "indices"))
    indices += [None] * (len(x.shape) - len(indices))
    picked = [a for a, i in enumerate(indices) if i is not None]
    _lost(call, x, picked, "picks channels by number")
    by_flags = any(i is not None and i.dtype.itemsize == 1 for i in indices)
    if picked != list(range(picked[0], picked[-1] + 1)) or by_flags:
        _lost(call, x, range(len(x.shape)), "indexes several axes at once")
        return Value(shape)
    growth = len(shape) - (len(x.shape) - len(picked))
    moved = {a: a if a < picked[0] else a - len(picked) + growth for a in range(len(x.shape)) if a not in picked}
    return _keep(x, shape, moved)


@rule("index_select")
def index_select(call: Call) -> Value:
    """Look-up along one axis."""
    x = call.value(0)
    axis = call.arg(1, "dim") % len(x.shape)
    _lost(call, x, [axis], "picks channels by number")
    return _keep(x, out_shape(call), {a: a for a in range(len(x.shape)) if a != axis})


@rule("gather")
def gather(call: Call) -> Value:
    """Look-up along one axis, place by place."""
    x, shape, picks = call.value(0), out_shape(call), call.value(2, "index")
    axis = call.arg(1, "dim") % max(len(x.shape), 1)
    _lost(call, picks, picks.axes, "takes them as places")
    kept = {a: a for a in range(len(x.shape)) if a != axis and shape[a] == x.shape[a]}
    _lost(call, x, [a for a in x.axes if a not in kept], "picks channels by number")
    return _keep(x, shape, kept)


@rule("_pack_padded_sequence")
def pack(call: Call) -> list[Value]:
    """Sequences of different lengths, step by step in one tensor; the features stay the last axis."""
    x, outs = call.value(0), [tuple(t.shape) for t in call.op.out]
    last = len(x.shape) - 1
    _lost(call, x, [a for a in x.axes if a != last], "packs a channel axis")
    return [_keep(x, outs[0], {last: len(outs[0]) - 1}), *[Value(shape) for shape in outs[1:]]]


@rule("embedding")
def embedding(call: Call) -> Value:
    """Rows of a table."""
    table, shape = call.value(0), out_shape(call)
    _lost(call, table, [0], "looks rows up by number")
    return _keep(table, shape, {1: len(shape) - 1})


@rule("pixel_shuffle", "pixel_unshuffle")
def pixel_shuffle(call: Call) -> Value:
    """Runs of channels become space, or space becomes runs of channels."""
    x, shape, factor = call.value(0), out_shape(call), call.arg(1, "upscale_factor") ** 2
    axes = {a: c for a, c in x.axes.items() if a < len(shape) - 3}
    axis = len(shape) - 3
    if (channels := x.at(axis)) is not None:
        if call.name == "pixel_unshuffle":
            axes[axis] = channels.take(np.repeat(np.arange(len(channels.units)), factor))
        else:
            axes |= {a + axis: c for a, c in _split_runs(call, channels, factor).items()}
    return Value(shape, axes)


def _split_runs(call: Call, channels: Channels, run: int) -> dict[int, Channels]:
    rows = channels.units.reshape(-1, run)
    if len(rows) == 1:
        call.ledger.pin(channels.units, f"{call.label} leaves a single channel")
        return {}
    call.ledger.tie(rows, rows[:, :1], f"{call.label} joins runs of channels")
    return {0: replace(channels, units=rows[:, 0], zero=np.asarray(channels.zero.reshape(-1, run).all(axis=1)))}


@rule("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(call: Call) -> Value:
    """The same places of every group come to lie side by side."""
    x, groups = call.value(0), call.arg(1, "groups")
    axes = dict(x.axes)
    if (channels := axes.get(1)) is not None:
        order = np.arange(len(channels.units)).reshape(groups, -1)
        rows = channels.units.reshape(groups, -1)
        call.ledger.tie(rows, rows[:1], f"{call.label} splits channels")
        axes[1] = channels.take(order.T.ravel())
    return Value(x.shape, axes)


@rule("im2col")
def unfold(call: Call) -> Value:
    """Every channel becomes a run of its neighbourhood's values."""
    x, shape = call.value(0), out_shape(call)
    axis = len(x.shape) - 3
    axes = {a: c for a, c in x.axes.items() if a < axis}
    if (channels := x.at(axis)) is not None:
        axes[axis] = channels.take(np.repeat(np.arange(len(channels.units)), math.prod(call.arg(1, "kernel_size"))))
    return Value(shape, axes)
