"""Why is it not faster? Layer by layer: what the cut saved in multiply-adds, and what it saved in time."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from pcshrink.common.tables import text_table
from pcshrink.graph.model import unwrap
from pcshrink.measure.layers import Layer, LayerTable, layers_of
from pcshrink.surgery.gates import remove_gates_

BLOCK = 16


@dataclass(frozen=True, kw_only=True)
class LayerChange:
    """One layer before and after the cut.

    Attributes:
        name: Module name.
        before: Widths in and out, and its time.
        after: The same after the cut.
        before_ms: Time before.
        after_ms: Time after.
        madds_ratio: Multiply-adds after, as a share of before.
        reason: Why the time did not follow, as far as the widths show it; empty where it did.
    """

    name: str
    before: tuple[int, int]
    after: tuple[int, int]
    before_ms: float
    after_ms: float
    madds_ratio: float
    reason: str

    @property
    def lost_ms(self) -> float:
        """Time that the cut in multiply-adds promised and did not give."""
        return self.after_ms - self.before_ms * self.madds_ratio


def explain(
    before: nn.Module, after: nn.Module, example_input: object, table: LayerTable | None = None
) -> list[LayerChange]:
    """Time every layer of both models by itself, those that lost the most time first.

    Args:
        before: The full-size model.
        after: The compact one, with the same module names.
        example_input: A tensor, or a tuple of arguments.
        table: Where and how to measure; onnxruntime unless you say otherwise.
    """
    table = table or LayerTable()
    both = [_bare_layers(model, example_input) for model in (before, after)]
    for layers in both:
        table.total(layers)
    changes = [_change(name, calls, both[1][name], table) for name, calls in both[0].items() if name in both[1]]
    return sorted(changes, key=lambda change: -change.lost_ms)


def _bare_layers(model: nn.Module, example_input: object) -> dict[str, list[Layer]]:
    bare = copy.deepcopy(unwrap(model))
    remove_gates_(bare)
    return layers_of(bare, example_input)


def _change(name: str, before: list[Layer], after: list[Layer], table: LayerTable) -> LayerChange:
    ratio = sum(layer.madds for layer in after) / max(sum(layer.madds for layer in before), 1)
    old, new = (1e3 * sum(table.times[layer] for layer in calls) for calls in (before, after))
    return LayerChange(
        name=name,
        before=(before[0].width_in, before[0].width_out),
        after=(after[0].width_in, after[0].width_out),
        before_ms=old,
        after_ms=new,
        madds_ratio=ratio,
        reason=_reason(before[0], after[0], old, new, ratio),
    )


def _reason(before: Layer, after: Layer, old: float, new: float, ratio: float) -> str:
    if new <= old * (ratio + 0.1 * (1 - ratio)) or ratio > 0.99:
        return ""
    odd = [w for w in (after.width_in, after.width_out) if w % BLOCK and w > BLOCK]
    if odd and not (before.width_in % BLOCK or before.width_out % BLOCK):
        return f"{' and '.join(map(str, dict.fromkeys(odd)))} channels are not a multiple of {BLOCK}"
    if after.groups > 1:
        return "depthwise: bound by memory, not by multiply-adds"
    if after.madds < 2_000_000 or min(after.width_in, after.width_out) <= BLOCK:
        return "too small to fill the processor"
    return "bound by memory"


def table_of(changes: list[LayerChange], most: int = 12) -> str:
    """The layers that lost the most, as text."""
    rows = [
        [
            change.name,
            "{}x{} -> {}x{}".format(*change.before, *change.after),
            f"{change.madds_ratio:.2f}",
            f"{change.after_ms / change.before_ms:.2f}",
            f"{change.lost_ms:.3f}",
            change.reason,
        ]
        for change in changes[:most]
    ]
    return text_table(rows, "<<>>><", head=["layer", "in x out", "madds", "time", "lost ms", "why"])


def overheads(changes: list[LayerChange], whole_ms: Mapping[str, float]) -> str:
    """What is left of the whole models' times when all layers are taken away."""
    old, new = sum(c.before_ms for c in changes), sum(c.after_ms for c in changes)
    names = list(whole_ms)
    return (
        f"layers by themselves: {old:.2f} -> {new:.2f} ms; whole models: {whole_ms[names[0]]:.2f} -> "
        f"{whole_ms[names[1]]:.2f} ms (the rest is activations, sums, pooling and layout changes)"
    )
