"""The first row while it is pushed, beside its twin without a push."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Epoch = dict[str, Any]
LINES: tuple[tuple[str, Callable[[Epoch], str]], ...] = (
    ("task loss", lambda epoch: f"{epoch['loss']:.2f}"),
    ("error, %", lambda epoch: f"{epoch['error']:.1f}"),
    ("madds left, %", lambda epoch: f"{100 * epoch['madds_share']:.1f}"),
    ("lambda, 1e-3", lambda epoch: f"{1e3 * epoch['lambda']:.2f}"),
    ("highest salience pushed", lambda epoch: f"{epoch['highest_selected']:.2f}"),
)
BOTH = 2  # of the lines: what the twin has as well


def push_table(pushed: list[Epoch], twin: list[Epoch]) -> str:
    """Every epoch of the shrinking phase in which the error was measured; the twin may be missing."""
    seen, beside = _measured(pushed), _measured(twin)
    if not seen:
        return ""
    rows = [["epoch", *(str(epoch["epoch"] + 1) for epoch in seen)]]
    rows += [[name, *map(say, seen)] for name, say in LINES]
    if len(beside) == len(seen):
        rows += [[f"{name} of the twin", *map(say, beside)] for name, say in LINES[:BOTH]]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    if len(beside) == len(seen):
        lines += ["", _difference(seen, beside)]
    return "\n".join(lines)


def _measured(epochs: list[Epoch]) -> list[Epoch]:
    return [epoch for epoch in epochs if epoch["phase"] == "shrink" and epoch["error"] is not None]


def _difference(seen: list[Epoch], beside: list[Epoch]) -> str:
    largest, twins = (max(epoch["error"] for epoch in epochs) for epochs in (seen, beside))
    mean = sum(a["error"] - b["error"] for a, b in zip(seen, beside, strict=True)) / len(seen)
    return (
        f"Largest error {largest:.1f} %, that of the twin {twins:.1f} %: {largest - twins:+.1f} points. "
        f"Mean difference of the epochs: {mean:+.1f} points."
    )
