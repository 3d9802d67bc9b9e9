"""What the runs of a sweep came to, as rows, and the rows as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcshrink.common.files import write_text
from pcshrink.common.tables import text_table
from pcshrink.config import Convention
from pcshrink.sweep.runs import Outcome
from pcshrink.sweep.vary import start_of
from pcshrink.train.outcome import BudgetOutcome
from pcshrink.train.recipe.schema import Recipe

Row = dict[str, Any]
NOTHING = "-"


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        key: Its name in CSV and JSON.
        head: Its name in the text; None leaves it out there.
        show: How a value is written in the text.
        side: "<" or ">".
    """

    key: str
    head: str | None
    show: Callable[[Any], str] = str
    side: str = ">"


def percent(value: float) -> str:
    """A percentage with two decimals."""
    return f"{value:.2f}"


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %"


def whole(value: float) -> str:
    """A whole number with thousands set apart."""
    return f"{value:,.0f}"


def points(value: float) -> str:
    """A difference of percentages."""
    return f"{value:+.2f}"


MEASURED = (
    Column("error", "error %", percent),
    Column("spread", "spread", percent),
    Column("seeds", "seeds"),
    Column("madds", "madds", whole),
    Column("madds_share", "left", share),
    Column("params", "params", whole),
    Column("mem_access", "mem_access", whole),
    Column("latency_share", "latency", share),
)


def measured(outcomes: Sequence[Outcome], recipe: Recipe) -> Row:
    """Means over the runs that finished, the spread of their errors, why the others did not, and missed budgets."""
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    reasons = [*dict.fromkeys(outcome.reason for outcome in outcomes if outcome.reason), *_missed(results)]
    errors = [float(result["compact"]["error"]) for result in results]
    row: Row = {
        "error": _mean(errors),
        "spread": statistics.stdev(errors) if len(errors) > 1 else None,
        "seeds": f"{len(results)}/{len(outcomes)}" if len(results) < len(outcomes) else str(len(results)),
        "reason": "; ".join(reasons),
        "whole": len(results) == len(outcomes),
        "runs": [outcome.folder.name for outcome in outcomes if outcome.folder is not None],
    }
    for metric, key in costs(recipe).items():
        mean = _mean(float(result["compact"][key]) for result in results)
        row[metric] = None if mean is None else round(mean)
    madds = costs(recipe)["madds"]
    row["madds_share"] = _mean(result["compact"][madds] / result["dense"][madds] for result in results)
    row["latency_share"] = _mean(o.latency_share for o in outcomes if o.latency_share is not None)
    return row


def _missed(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """That runs cost more than they were allowed to, if some do."""
    budgets = [BudgetOutcome.from_dict(result["budget"]) for result in results if result.get("budget")]
    over = [budget.reached / budget.limit - 1 for budget in budgets if budget.missed]
    if not over:
        return []
    which = f" in {len(over)} of {len(results)} runs" if len(results) > 1 else ""
    return [f"budget missed by {'up to ' * (len(over) > 1)}{share(max(over))}{which}"]


def dense_row(outcomes: Sequence[Outcome], recipe: Recipe) -> Row | None:
    """The network before it shrank, as any of the runs saw it; None while no run is finished."""
    seen = next((outcome.result["dense"] for outcome in outcomes if outcome.result is not None), None)
    if seen is None:
        return None
    row = {metric: seen[key] for metric, key in costs(recipe).items()}
    timed = 1.0 if any(outcome.latency_share is not None for outcome in outcomes) else None
    return row | {"error": seen.get("error"), "madds_share": 1.0, "latency_share": timed}


def costs(recipe: Recipe) -> dict[str, str]:
    """Where a result has each cost, in the convention that the recipe's budget counts by."""
    prefix = "paper_" if convention(recipe) == "paper" else ""
    return {"madds": f"{prefix}madds", "params": "params", "mem_access": f"{prefix}mem_access"}


def convention(recipe: Recipe) -> Convention:
    """How multiply-adds and memory accesses are counted."""
    return recipe.shrink.convention if recipe.shrink is not None else "layers"


def about(recipe: Recipe) -> dict[str, str]:
    """What all rows have in common, in words."""
    epochs = recipe.epochs
    return {
        "network": f"{recipe.model.name} on {recipe.data.name}",
        "start": start_of(recipe),
        "epochs": f"{epochs.warmup} warm-up, {epochs.shrink} shrinking, {epochs.settle} settling; the last one counts",
        "counted by": f"the {convention(recipe)} convention",
        "latency": "eager, batch 1, one thread, beside the dense network",
    }


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return statistics.fmean(numbers) if numbers else None


@dataclass(frozen=True)
class Table:
    """Rows with named columns.

    Attributes:
        name: What its files are called.
        about: What was compared: for the head of the text and for JSON.
        columns: All columns, in order.
        rows: One mapping for each row; what is missing or None is not known.
    """

    name: str
    about: Mapping[str, str]
    columns: Sequence[Column]
    rows: Sequence[Row]

    @property
    def failed(self) -> int:
        """How many rows lack a run; one that only missed its budget does not."""
        return sum(bool(row.get("reason")) and not row.get("whole") for row in self.rows)

    def text(self) -> str:
        """For people; columns without any value are left out."""
        shown = [c for c in self.columns if c.head is not None and any(_known(row, c) for row in self.rows)]
        cells = [[c.show(row[c.key]) if _known(row, c) else NOTHING for c in shown] for row in self.rows]
        head = [str(c.head) for c in shown]
        about = "\n".join(f"{key}: {value}" for key, value in self.about.items())
        return f"{about}\n\n{text_table(cells, ''.join(c.side for c in shown), head=head)}"

    def csv(self) -> str:
        """For spreadsheets: all columns, numbers as they are."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([c.key for c in self.columns])
        writer.writerows([[row[c.key] if _known(row, c) else "" for c in self.columns] for row in self.rows])
        return file.getvalue()

    def json(self) -> str:
        """For machines: the same, with the folders of the runs."""
        rows = [{c.key: row.get(c.key) for c in self.columns} | {"runs": row.get("runs", [])} for row in self.rows]
        return json.dumps({"about": dict(self.about), "rows": rows}, indent=1)

    def write(self, folder: Path, figure: str) -> list[Path]:
        """Write text, CSV, JSON and the figure (SVG) into a folder; their paths."""
        contents = {"txt": self.text() + "\n", "csv": self.csv(), "json": self.json() + "\n", "svg": figure}
        paths = [folder / f"{self.name}.{kind}" for kind in contents]
        for path, content in zip(paths, contents.values(), strict=True):
            write_text(path, content)
        return paths


def _known(row: Row, column: Column) -> bool:
    return row.get(column.key) not in (None, "")


@dataclass(frozen=True)
class Report:
    """What a sweep came to.

    Attributes:
        table: Its rows.
        files: What was written.
        stopped: The signal that stopped it early, or 0.
    """

    table: Table
    files: Sequence[Path]
    stopped: int = 0
