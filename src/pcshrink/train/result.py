"""What a finished run gives: numbers, files and a table before / after."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcshrink.common.files import write_text
from pcshrink.common.tables import text_table


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
        before, after = self.dense.get("error"), self.compact.get("error")
        rows = [("error", _percent(before), _percent(after), _points(before, after))]
        for metric in ("params", "madds", "mem_access"):
            before, after = self.dense.get(metric), self.compact.get(metric)
            if before and after:
                rows.append((metric, f"{before:,}", f"{after:,}", f"{100 * after / before:.1f} %"))
        before, after = self.dense.get("latency_ms"), self.compact.get("latency_ms")
        if before and after:
            rows.append(("latency", f"{before:.2f} ms", f"{after:.2f} ms", f"{100 * after / before:.1f} %"))
        return text_table(rows, head=("", "dense", "compact", "left"))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _points(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{after - before:+.2f} points"
