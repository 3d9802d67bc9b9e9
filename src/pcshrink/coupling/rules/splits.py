"""Rules for operations that take a channel axis apart: chunk, split, slice."""

from __future__ import annotations

import re

import numpy as np

from pcshrink.coupling.rules.core import Call, out_shape, rule
from pcshrink.coupling.units import AttributeFix, Channels, Ids, Value

WIDTH = re.compile(r"^((in|out|mid|expand|split|chunk)_)?(width|c|chs|channels|dim|size)$")


@rule("split", "unsafe_split", "split_with_sizes", "unsafe_split_with_sizes", "chunk", "unsafe_chunk")
def split(call: Call) -> list[Value]:
    """Pieces along one axis."""
    x = call.value(0)
    axis = call.arg(2, "dim", 0) % len(x.shape)
    shapes = [tuple(t.shape) for t in call.op.out]
    rest = {a: c for a, c in x.axes.items() if a != axis}
    pieces: list[Channels] | None = None
    if axis in x.axes:
        sizes = [s[axis] for s in shapes]
        pieces = _listed(call, x.axes[axis], sizes)
        if pieces is None:
            pieces = _pieces(call, x.axes[axis], sizes[0] if len(set(sizes)) == 1 else 0)
    return [
        Value(shape, rest | ({axis: pieces[i]} if pieces else {}), x.origin if pieces is None else None)
        for i, shape in enumerate(shapes)
    ]


@rule("slice", "narrow")
def slice_(call: Call) -> Value:
    """A range along one axis."""
    x, shape = call.value(0), out_shape(call)
    axis = call.arg(1, "dim", 0) % len(x.shape)
    size, total = shape[axis], x.shape[axis]
    if axis not in x.axes or size == total:
        return Value(shape, dict(x.axes), x.origin)
    channels = x.axes[axis]
    start = int(call.arg(2, "start", 0) or 0)
    start = min(max(start + total if start < 0 else start, 0), total)
    rest = {a: c for a, c in x.axes.items() if a != axis}
    if call.name == "slice" and int(call.arg(4, "step", 1)) != 1:
        call.ledger.pin(channels.units, f"{call.label} steps over the channels")
        return Value(shape, rest)
    if size == 0 or start % size:
        call.ledger.pin(channels.units, f"{call.label} cuts the channels at fixed, uneven places")
        return Value(shape, rest)
    pieces = _pieces(call, channels, size)
    return Value(shape, rest | ({axis: pieces[start // size]} if pieces else {}))


def _listed(call: Call, channels: Channels, sizes: list[int]) -> list[Channels] | None:
    """Pieces whose sizes the module keeps in a list (MixNet's ``splits``): each shrinks by itself."""
    for name, known in call.attributes.items():
        if type(known) not in (list, tuple) or len(known) != len(sizes) or len(sizes) < 2:
            continue
        if all(type(one) is int and one == size for one, size in zip(known, sizes, strict=True)):
            ends = np.cumsum(sizes)
            pieces = [channels.take(slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
            for number, piece in enumerate(pieces):
                call.ledger.fixes.append(AttributeFix(call.op.module, f"{name}[{number}]", piece.units))
            return pieces
    return None


def _pieces(call: Call, channels: Channels, size: int) -> list[Channels] | None:
    """Cut a channel axis into equal pieces that shrink alike; ``None`` when the pieces are uneven."""
    if size <= 0 or len(channels.units) % size:
        call.ledger.pin(channels.units, f"{call.label} cuts the channels at fixed, uneven places")
        return None
    rows = channels.units.reshape(-1, size)
    call.ledger.tie(rows.ravel(), np.broadcast_to(rows[:1], rows.shape).ravel(), f"{call.label} splits channels")
    _size_fixes(call, rows[0])
    _size_fixes(call, rows.ravel())
    return [channels.take(slice(start, start + size)) for start in range(0, len(channels.units), size)]


def _size_fixes(call: Call, units: Ids) -> None:
    """Plain numbers a module keeps of what it splits (Res2Net's ``width``, CSP's ``expand_chs``) follow the cut."""
    for name, number in call.attributes.items():
        if type(number) is int and number == len(units) and WIDTH.match(name):
            call.ledger.fixes.append(AttributeFix(call.op.module, name, units))
