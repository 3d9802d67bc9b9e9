"""Rules for norms: of features, and of weights."""

from __future__ import annotations

from dataclasses import replace

from pcshrink.coupling.rules.core import Call, own_origin, rule, units_of
from pcshrink.coupling.units import AttributeFix, Value


@rule("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm",
      "miopen_batch_norm", "_batch_norm_with_update", "_batch_norm_no_update")  # fmt: skip
def batch_norm(call: Call) -> list[Value]:
    """A norm of each channel by itself; it shifts zero, so the gate comes after it."""
    x, outs = call.value(0), [Value(tuple(t.shape)) for t in call.op.out]
    channels = x.at(1)
    units = units_of(channels, x.shape[1])
    for position in range(1, 5):
        other = call.value(position)
        if (own := other.at(0)) is not None:
            call.ledger.tie(units, own.units, f"{call.label} of a tensor of fixed width")
    stats_from_batch = call.name in ("native_batch_norm", "cudnn_batch_norm") and bool(call.arg(5, "training"))
    for axis, rest in x.axes.items():
        if axis != 1 and (stats_from_batch or call.value(3).shape == ()):
            call.ledger.pin(rest.units, f"{call.label} takes statistics over a channel axis")
    if isinstance(size := call.attributes.get("num_features"), int):  # an instance norm sees batch x channels
        call.ledger.fixes.append(AttributeFix(call.op.module, "num_features", units[:size]))
    why = f"{call.label} does not map 0 to 0"
    origin = x.origin or own_origin(call, x, 1)
    axes = {a: c.broken(why) for a, c in x.axes.items()}
    outs[0] = replace(outs[0], axes=axes, origin=origin)
    return outs


@rule("native_layer_norm", "_fused_rms_norm")
def layer_norm(call: Call) -> list[Value]:
    """A norm over whole axes: a channel less would change all the others."""
    x = call.value(0)
    first = len(x.shape) - len(call.arg(1, "normalized_shape"))
    axes = {}
    for axis, channels in x.axes.items():
        if axis >= first:
            call.ledger.pin(channels.units, f"{call.label} normalises over the channels")
        else:
            axes[axis] = channels.broken(f"{call.label} does not map 0 to 0")
    return [Value(x.shape, axes), *[Value(tuple(t.shape)) for t in call.op.out[1:]]]


@rule("native_group_norm")
def group_norm(call: Call) -> list[Value]:
    """A norm over groups of channels: the channels of a group leave together, and the other groups do not notice."""
    x, groups, outs = call.value(0), int(call.arg(6, "group")), [Value(tuple(t.shape)) for t in call.op.out]
    for axis, channels in x.axes.items():
        if axis != 1 or groups == 1:
            call.ledger.pin(channels.units, f"{call.label} normalises over all channels together")
    units, why = units_of(x.at(1), x.shape[1]), f"{call.label} of a tensor of fixed width"
    for position in (1, 2):
        if (own := call.value(position).at(0)) is not None:
            call.ledger.tie(units, own.units, why)
    if groups == 1 or x.at(1) is None:
        return outs
    rows = units.reshape(groups, -1)
    call.ledger.tie(rows, rows[:, :1], why)
    for attribute, counted in (("num_groups", rows[:, 0]), ("num_channels", units)):
        if isinstance(call.attributes.get(attribute), int):
            call.ledger.fixes.append(AttributeFix(call.op.module, attribute, counted))
    axes = {a: c.broken(f"{call.label} does not map 0 to 0") for a, c in x.axes.items() if a == 1}
    return [replace(outs[0], axes=axes, origin=x.origin or own_origin(call, x, 1)), *outs[1:]]


@rule("_weight_norm_interface")
def weight_norm(call: Call) -> list[Value]:
    """Weight norm called as a function: each index of one axis by itself, with a norm over the others."""
    raw, gain, axis = call.value(0), call.value(1), int(call.arg(2, "dim", 0))
    axes = {}
    for place, channels in raw.axes.items():
        if place != axis % len(raw.shape):
            call.ledger.pin(channels.units, f"{call.label} takes the norm of a weight over them")
            continue
        for own in gain.axes.values():
            call.ledger.tie(channels.units, own.units, f"{call.label} of a tensor of fixed width")
        axes[place] = channels
    return [Value(raw.shape, axes), *[Value(tuple(t.shape)) for t in call.op.out[1:]]]
