"""What a finished run gives: numbers, files and a table before / after."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcshrink.train.checkpoint import write_text


@dataclass
class Result:
    """The outcome of a run.

    Attributes:
        folder: Where all its files are.
        model_dir: The saved network, for ``pcshrink.load`` and ``pcshrink eval``.
        dense: Costs and error of the uncompressed network (error only if it was measured).
        compact: Costs and error of the final network.
        cut: Errors of the gated, masked and compact network when the channels were cut, and the leak.
        budget: The limit and what was reached, if there was one.
        widths: Channels left in each group.
        seconds: Wall time of this process.
        files: What was written.
    """

    folder: Path
    model_dir: Path
    dense: dict[str, Any]
    compact: dict[str, Any]
    cut: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    widths: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    files: dict[str, str] = field(default_factory=dict)

    def budget_line(self) -> str:
        """The budget and what was reached, in words."""
        met = self.budget or {}
        if met.get("metric") == "latency":
            line = (
                f"budget: {met['limit']:g} of the dense latency ({met['convention']}), measured {met['reached']:.3f} "
                f"({met['low']:.3f} to {met['high']:.3f})"
            )
            return line + (f"; {met['note']}" if met["note"] else "")
        reached = f"reached {met['reached']:,} ({met['convention']} convention)"
        return f"budget: {met['metric']} {met['limit']:,.0f}, {reached}"

    def save(self) -> Path:
        """Write ``result.json``."""
        path = self.folder / "result.json"
        write_text(path, json.dumps(asdict(self), indent=1, default=str))
        return path

    def table(self) -> str:
        """Before and after as plain text."""
        rows = [("", "dense", "compact", "left")]
        for key, label in (("error", "error"), ("params", "params"), ("madds", "madds"), ("mem_access", "mem_access")):
            before, after = self.dense.get(key), self.compact.get(key)
            if key == "error":
                rows.append((label, _percent(before), _percent(after), _points(before, after)))
            elif before and after:
                rows.append((label, f"{before:,}", f"{after:,}", f"{100 * after / before:.1f} %"))
        before, after = self.dense.get("latency_ms"), self.compact.get("latency_ms")
        if before and after:
            rows.append(("latency", f"{before:.2f} ms", f"{after:.2f} ms", f"{100 * after / before:.1f} %"))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
                 for row in rows]  # fmt: skip
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:]])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _points(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{after - before:+.2f} points"
