"""Attention heads: where a tensor's axes are heads, and which numbers of a module count them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from pcshrink.coupling.rules.core import Call, rule, units_of
from pcshrink.coupling.units import AttributeFix, Channels, Ids, Value

HEADS = re.compile(r"^(num_|n_|nb_|no_)?(attention_|attn_|q_)?heads?(_num|_count)?$")
HEAD_SIZE = re.compile(r"^(head|attention_head|attn_head)_(dim|size|width)$|^(dim|d)_(head|kv)$|^key_value_proj_dim$")
WIDTHS = re.compile(
    r"^(all_head|attn|attention|inner|value|val|v|hidden|out|output)_?(dim|size|width|features|channels)s?(_v)?$|^dim_out$"
)


def free_axis(call: Call, units: Ids, varying: list[int]) -> tuple[int, bool]:
    """Heads where the module says how many or how wide they are, else the last axis: code fixes other numbers."""
    if len(varying) > 1:
        for name, number in call.attributes.items():
            matching = [a for a in varying if isinstance(number, int) and units.shape[a] == number]
            if matching and HEADS.match(name):
                # (3, heads, size): with 3 heads, or as many as a head is wide, two axes look alike
                axis = ([a for a in matching if a != varying[-1]] or matching)[-1]
                first = np.moveaxis(units, axis, 0).reshape(number, -1)[:, 0]
                call.ledger.fixes.append(AttributeFix(call.op.module, name, first))
                return axis, True
        for name, number in call.attributes.items():
            # queries, keys and values of a head may lie side by side
            if type(number) is int and units.shape[varying[-1]] in (number, 3 * number) and HEAD_SIZE.match(name):
                return varying[-2], True
    return varying[-1], False


def merged_widths(call: Call, units: Ids) -> None:
    """A module's plain number for the width of all its heads together follows their number."""
    if units[0] != units[1]:
        return  # heads of several samples in a row, not the features of each head
    for name, number in call.attributes.items():
        if type(number) is int and number == len(units) and WIDTHS.match(name):
            call.ledger.fixes.append(AttributeFix(call.op.module, name, units))


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
      "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math",
      "scaled_dot_product_attention")  # fmt: skip
def attention(call: Call) -> Any:
    """Heads stay apart; what lies inside a head stays whole."""
    query, key, content = call.value(0), call.value(1), call.value(2)
    for value in (query, key, content):
        for axis, channels in value.axes.items():
            if axis != 1:
                call.ledger.pin(channels.units, f"{call.label} keeps whatever lies inside a head")
    heads = query.at(1)
    _tie_mask(call, heads)
    out = call.op.out
    first = out if isinstance(out, Tensor) else out[0]
    axes = {}
    if heads is not None:
        for other in (key, content):
            units = units_of(other.at(1), other.shape[1])
            shared = np.repeat(units, len(heads.units) // len(units))  # grouped queries: neighbours share keys
            call.ledger.tie(heads.units, shared, f"{call.label} joins heads of fixed number")
        axes[1] = replace(heads.broken("the heads' outputs"), heads=True)
    result = Value(tuple(first.shape), axes, query.origin)
    if isinstance(out, Tensor):
        return result
    return [result, *[Value(tuple(t.shape)) if isinstance(t, Tensor) else Value(()) for t in out[1:]]]


def _tie_mask(call: Call, heads: Channels | None) -> None:
    """A mask or bias with an axis for heads shrinks along with them, or keeps them all."""
    tensor = call.op.kwargs.get("attn_mask", call.op.kwargs.get("attn_bias", call.arg(3, "attn_mask")))
    if not isinstance(tensor, Tensor):
        return
    mask, reason = call.lookup(tensor), f"{call.label} adds a mask for a fixed number of heads"
    for axis, channels in mask.axes.items():
        if heads is None or axis != len(mask.shape) - 3:
            call.ledger.pin(channels.units, f"{call.label} adds them to the scores")
    if heads is not None and len(mask.shape) > 2 and mask.shape[-3] > 1:
        call.ledger.tie(heads.units, units_of(mask.at(-3), mask.shape[-3]), reason)
