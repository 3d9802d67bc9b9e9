"""What a result says about its budget, and what its file keeps of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pcshrink.train.outcome import BudgetOutcome, Dynamic
from pcshrink.train.result import Result

LATENCY = {"metric": "latency", "runtime": "onnxruntime", "limit": 0.6, "note": ""}
MADDS = {"metric": "madds", "convention": "layers", "limit": 1000.0}
DYNAMIC = Dynamic("layers", 100, 900.0, 50.0, 800.0, 950.0, 1800, 20, 300, 400, {"conv1": 0.5})


def result(budget: dict[str, Any] | None, folder: Path = Path(), **more: Any) -> Result:
    costs = {"latency_ms": 2.0, "latency_runtime": "onnxruntime", "error": 10.0}
    met = BudgetOutcome(**budget) if budget is not None else None
    smaller = costs | {"latency_ms": 1.0, "error": 12.5}
    return Result(folder, folder / "model", dict(costs), smaller, budget=met, **more)


@pytest.mark.parametrize(
    ("budget", "missed"),
    [
        (None, False),
        (LATENCY | {"reached": 0.8, "low": 0.78, "high": 0.82}, True),
        (LATENCY | {"reached": 0.62, "low": 0.59, "high": 0.65}, False),
        (LATENCY | {"reached": 0.55, "low": 0.54, "high": 0.56}, False),
        (MADDS | {"reached": 1100.0}, True),
        (MADDS | {"reached": 1005.0}, False),
    ],
)
def test_a_missed_budget_is_called_so(budget: dict[str, Any] | None, missed: bool) -> None:
    made = result(budget)
    assert made.missed is missed
    assert ("MISSED" in made.budget_line()) is missed


def test_a_latency_that_may_be_too_long_is_not_called_met() -> None:
    made = result(LATENCY | {"reached": 0.66, "low": 0.6, "high": 0.72})
    assert not made.missed
    assert made.budget_line().endswith("measured 0.660 (0.600 to 0.720); not shown to be met")
    surely = result(LATENCY | {"reached": 0.62, "low": 0.59, "high": 0.65})
    assert "not shown" not in surely.budget_line()


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (LATENCY | {"reached": 0.8, "share": 0.8, "low": 0.78, "high": 0.82}, LATENCY),
        (MADDS | {"reached": 990.0, "share": 0.5}, MADDS),
    ],
)
@pytest.mark.parametrize("dynamic", [None, DYNAMIC])
def test_the_file_gives_the_result_back(
    budget: dict[str, Any], kept: dict[str, Any], dynamic: Dynamic | None, tmp_path: Path
) -> None:
    made = result(budget, tmp_path, dynamic=dynamic)
    content = json.loads(made.save().read_text())
    assert content["budget"] == budget  # nothing of the other kind of budget
    assert content["budget"].items() >= kept.items()
    assert Result.from_dict(content) == made


def test_an_older_file_has_the_runtime_where_the_convention_is() -> None:
    older = {"metric": "latency", "convention": "eager", "limit": 0.6, "note": "", "reached": 0.5, "share": 0.5}
    read = BudgetOutcome.from_dict(older | {"low": 0.4, "high": 0.6})
    assert (read.runtime, read.convention) == ("eager", None)
    assert read.line() == "budget: 0.6 of the dense latency (eager), measured 0.500 (0.400 to 0.600)"


def test_the_table_says_where_it_was_timed_and_how_many_are_right() -> None:
    table = result(None).table()
    assert "latency, onnxruntime" in table
    assert ["accuracy", "90.00", "%", "87.50", "%", "-2.50", "points"] in [line.split() for line in table.splitlines()]
