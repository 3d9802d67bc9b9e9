"""Attention heads: where a tensor's axes are heads, and which numbers of a module count them."""

from __future__ import annotations

import re

import numpy as np

from pcshrink.surgery.channels import AttributeFix, Ids
from pcshrink.surgery.rules import Call

HEADS = re.compile(r"^(num_|n_|nb_|no_)?(attention_|attn_|q_)?heads?(_num|_count)?$")
WIDTHS = re.compile(r"^(all_head|attn|attention|inner|value|val|v|hidden)_?(dim|size|width|features|channels)s?(_v)?$")


def free_axis(call: Call, units: Ids, varying: list[int]) -> tuple[int, bool]:
    """Heads where the module says how many it has; otherwise the last axis, since code fixes the number of parts."""
    if len(varying) > 1:
        for name, number in call.attributes.items():
            matching = [a for a in varying if isinstance(number, int) and units.shape[a] == number]
            if matching and HEADS.match(name):
                # (3, heads, size): with 3 heads, or as many as a head is wide, two axes look alike
                axis = ([a for a in matching if a != varying[-1]] or matching)[-1]
                first = np.moveaxis(units, axis, 0).reshape(number, -1)[:, 0]
                call.ledger.fixes.append(AttributeFix(call.op.module, name, first))
                return axis, True
    return varying[-1], False


def merged_widths(call: Call, units: Ids) -> None:
    """A module's plain number for the width of all its heads together follows their number."""
    for name, number in call.attributes.items():
        if type(number) is int and number == len(units) and WIDTHS.match(name):
            call.ledger.fixes.append(AttributeFix(call.op.module, name, units))
