"""What a result says about its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcshrink.train.result import Result

LATENCY = {"metric": "latency", "convention": "onnxruntime", "limit": 0.6, "note": ""}
MADDS = {"metric": "madds", "convention": "layers", "limit": 1000.0}


def result(budget: dict[str, Any] | None) -> Result:
    costs = {"latency_ms": 2.0, "latency_runtime": "onnxruntime", "error": 10.0}
    return Result(Path(), Path("model"), dict(costs), costs | {"latency_ms": 1.0, "error": 12.5}, budget=budget)


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
    if budget is not None:
        assert ("MISSED" in made.budget_line()) is missed


def test_the_table_says_where_it_was_timed_and_how_many_are_right() -> None:
    table = result(None).table()
    assert "latency, onnxruntime" in table
    assert ["accuracy", "90.00", "%", "87.50", "%", "-2.50", "points"] in [line.split() for line in table.splitlines()]
