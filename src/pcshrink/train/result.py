"""What a finished run gives: numbers, files and a table before / after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcshrink.common.files import write_text
from pcshrink.common.tables import text_table
from pcshrink.train.outcome import BudgetOutcome, Dynamic


@dataclass
class Result:
    """The outcome of a run.

    Attributes:
        folder: Where all its files are.
        model_dir: The saved network, for ``pcshrink.load`` and ``pcshrink eval``.
        dense: Costs and error of the uncompressed network (error only if it was measured).
        compact: Costs and error of the final network; with a dynamic method, of the mean input.
        cut: Errors of the gated, masked and compact network when the channels were cut, and the leak.
        budget: The limit and what was reached, if there was one.
        widths: Channels left in each group.
        dynamic: What the evaluation images cost, if the gates choose for each input.
        measured: What "error" means: "error" by labels, or "disagreement" with the dense network, which labelled the
            images.
        seconds: Wall time of this process.
        files: What was written.
    """

    folder: Path
    model_dir: Path
    dense: dict[str, Any]
    compact: dict[str, Any]
    cut: dict[str, Any] | None = None
    budget: BudgetOutcome | None = None
    widths: dict[str, int] = field(default_factory=dict)
    dynamic: Dynamic | None = None
    measured: str = "error"
    seconds: float = 0.0
    files: dict[str, str] = field(default_factory=dict)

    @property
    def missed(self) -> bool:
        """Whether there was a budget and the network costs more, beyond what a measurement may be wrong by."""
        return self.budget is not None and self.budget.missed

    def budget_line(self) -> str:
        """The budget and what was reached, in words; empty where there was none."""
        return "" if self.budget is None else self.budget.line(by_mean_input=self.dynamic is not None)

    def save(self) -> Path:
        """Write ``result.json``."""
        path = self.folder / "result.json"
        budget = self.budget.to_dict() if self.budget is not None else None
        write_text(path, json.dumps(asdict(self) | {"budget": budget}, indent=1, default=str))
        return path

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Read the content of a ``result.json`` back, also an older one's."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        known |= {"folder": Path(data["folder"]), "model_dir": Path(data["model_dir"])}
        if known.get("budget"):
            known["budget"] = BudgetOutcome.from_dict(known["budget"])
        if known.get("dynamic"):
            known["dynamic"] = Dynamic(**known["dynamic"])
        return cls(**known)

    def table(self) -> str:
        """Before and after as plain text."""
        before, after = self.dense.get("error"), self.compact.get("error")
        rows = [(self.measured, _percent(before), _percent(after), _points(before, after))]
        if self.measured == "error":
            right = [None if error is None else 100 - error for error in (before, after)]
            rows.append(("accuracy", _percent(right[0]), _percent(right[1]), _points(*right)))
        for metric in ("params", "madds", "mem_access"):
            before, after = self.dense.get(metric), self.compact.get(metric)
            if before and after:
                spread = f" +- {self.dynamic.madds_std:,.0f}" if self.dynamic and metric == "madds" else ""
                rows.append((metric, f"{before:,}", f"{after:,}{spread}", f"{100 * after / before:.1f} %"))
        before, after = self.dense.get("latency_ms"), self.compact.get("latency_ms")
        if before and after:
            where = f"latency, {self.compact.get('latency_runtime', 'eager')}"
            rows.append((where, f"{before:.2f} ms", f"{after:.2f} ms", f"{100 * after / before:.1f} %"))
        name = "dynamic" if self.dynamic else "compact"
        return text_table(rows, head=("", "dense", name, "left")) + self._note()

    def _note(self) -> str:
        if not self.dynamic:
            return ""
        return (
            f"\ndynamic: madds are the mean over {self.dynamic.images} inputs of what had to run, "
            f"{self.dynamic.madds_least:,.0f} to {self.dynamic.madds_most:,.0f}; kernels stay whole"
        )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _points(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{after - before:+.2f} points"
