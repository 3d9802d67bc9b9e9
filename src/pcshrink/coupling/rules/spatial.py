"""Rules for operations over space: pooling, resampling, padding, and reductions."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from pcshrink.coupling.rules.core import Call, out_shape, rule
from pcshrink.coupling.units import Channels, Value

POOLING = [
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool2d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "grid_sampler_2d",
    "grid_sampler_3d",
]


@rule(*POOLING)
def pooling(call: Call) -> Any:
    """Each channel by itself; windows of zeros give zeros."""
    x = call.value(0)
    dimensions = re.search(r"([123])d", call.name)
    spatial = int(dimensions.group(1)) if dimensions else 2
    first = len(x.shape) - spatial
    for axis, channels in x.axes.items():
        if axis >= first:
            call.ledger.pin(channels.units, f"{call.label} runs over a channel axis")
    axes = {a: c for a, c in x.axes.items() if a < first}
    if isinstance(call.op.out, Tensor):
        return Value(out_shape(call), axes)
    return [Value(tuple(t.shape), axes) for t in call.op.out]


@rule("roi_align", "roi_pool", "ps_roi_align")
def region_pooling(call: Call) -> Any:
    """Boxes cut out of feature maps: each channel by itself."""
    x, boxes = call.value(0), call.value(1)
    for coordinates in boxes.axes.values():
        call.ledger.pin(coordinates.units, f"{call.label} takes them as boxes")
    channels = x.at(1)
    if channels is not None and call.name == "ps_roi_align":
        call.ledger.pin(channels.units, f"{call.label} spreads channels over places")
        channels = None
    axes = {} if channels is None else {1: channels}
    if isinstance(call.op.out, Tensor):
        return Value(out_shape(call), axes)
    return [Value(tuple(t.shape), axes) for t in call.op.out]


@rule("constant_pad_nd")
def pad(call: Call) -> Value:
    """A border of one value around some axes."""
    x, widths, fill = call.value(0), call.arg(1, "pad"), call.arg(2, "value", 0)
    axes: dict[int, Channels] = {}
    for axis, channels in x.axes.items():
        place = 2 * (len(x.shape) - 1 - axis)
        if any(widths[place : place + 2]):
            call.ledger.pin(channels.units, f"{call.label} pads the channel axis by a fixed number of channels")
        else:
            axes[axis] = channels if fill == 0 else channels.broken(f"{call.label} fills with {fill}")
    return Value(out_shape(call), axes)


@rule("mean", "sum", "amax", "amin", "var", "std", "linalg_vector_norm", "norm", "max", "min", "prod", "var_mean")
def reduce(call: Call) -> Any:
    """Axes are summed up; over channels only a plain sum is exact, and only when dead channels are zero."""
    x = call.value(0)
    outs = [call.op.out] if isinstance(call.op.out, Tensor) else list(call.op.out)
    dims = _reduced_axes(call, len(x.shape))
    keepdim = len(outs[0].shape) == len(x.shape)
    axes, position = {}, 0
    for axis in range(len(x.shape)):
        channels = x.axes.get(axis)
        if axis in dims:
            if channels is not None and call.name == "sum":
                call.ledger.require_zero(channels, call.label)
            elif channels is not None:
                call.ledger.pin(channels.units, f"{call.label} is taken over the channels")
            position += keepdim
            continue
        if channels is not None:
            axes[position] = channels
        position += 1
    values = [Value(tuple(t.shape), axes) for t in outs]
    return values[0] if isinstance(call.op.out, Tensor) else values


def _reduced_axes(call: Call, rank: int) -> set[int]:
    overload = call.op.func._overloadname
    if overload == "default" and call.name not in ("amax", "amin", "linalg_vector_norm"):
        return set(range(rank))
    given = call.arg(2 if call.name in ("linalg_vector_norm", "norm") else 1, "dim")
    if given is None or given == []:
        return set(range(rank))
    return {d % rank for d in (given if isinstance(given, (list, tuple)) else [given])}


@rule("max_unpool2d", "col2im", "_local_scalar_dense")
def read_as_numbers(call: Call) -> Any:
    """Values leave the tensor world or are put at places that are not known beforehand."""
    call.pin_all(f"{call.label} uses them as numbers")
    return Value(()) if not isinstance(call.op.out, Tensor) else Value(out_shape(call))


@rule("as_strided")
def as_strided(call: Call) -> Value:
    """A view by raw strides: understood only when nothing changes."""
    x = call.value(0)
    if out_shape(call) == x.shape:
        return x
    call.pin_all(f"{call.label} views raw memory")
    return Value(out_shape(call))
