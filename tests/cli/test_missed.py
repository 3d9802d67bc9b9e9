"""A budget that was missed: said in the runtime that was asked for, and in the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from pcshrink.cli.main import app
from pcshrink.pretrained.paired import Paired
from pcshrink.pretrained.request import Goal
from pcshrink.pretrained.run import Shrunk
from pcshrink.train.outcome import BudgetOutcome
from pcshrink.train.result import Result


def shrunk(latency: float, madds: float) -> Shrunk:
    paired = Paired(images=100, first_error=1.0, second_error=2.0, low=0.1, high=1.9, agreement=0.98)
    return Shrunk(Path("out"), paired, (latency, latency - 0.02, latency + 0.02), madds, 0.7, labelled=True)


@pytest.mark.parametrize(
    ("budget", "code", "said"),
    [
        (
            "latency=0.6",
            3,
            "budget: 60.0% of the dense network's latency in onnxruntime, reached 80.0% (78.0% to 82.0%); MISSED",
        ),
        (
            "latency=0.79",
            0,
            "budget: 79.0% of the dense network's latency in onnxruntime, reached 80.0% (78.0% to 82.0%)\n",
        ),
        ("latency=0.75", 0, "reached 80.0% (78.0% to 82.0%); not shown to be met"),
        ("madds=0.45", 3, "budget: 45.0% of the dense network's madds, reached 50.0%; MISSED"),
        ("madds=0.5", 0, "budget: 50.0% of the dense network's madds, reached 50.0%\n"),
        ("params=0.6", 3, "reached 70.0%; MISSED"),
    ],
)
def test_shrink_says_that_it_missed(budget: str, code: int, said: str, tmp_path: Path) -> None:
    words = ["shrink", "resnet20", "--images", str(tmp_path), "--budget", budget, "--out", str(tmp_path / "out"), "-q"]
    with (
        mock.patch("pcshrink.pretrained.prepare.prepare"),
        mock.patch("pcshrink.pretrained.run.run_one", return_value=shrunk(0.8, 0.5)),
    ):
        done = CliRunner().invoke(app, words)
    assert done.exit_code == code, done.output
    assert said in done.output
    assert not shrunk(0.8, 0.5).missed(Goal("max-drop", 1.0))


def test_train_says_that_it_missed(tmp_path: Path) -> None:
    budget = BudgetOutcome(metric="latency", runtime="onnxruntime", limit=0.6, reached=0.8, low=0.78, high=0.82)
    costs: dict[str, Any] = {"latency_ms": 10.0, "latency_runtime": "onnxruntime", "error": 1.0}
    result = Result(tmp_path, tmp_path / "model", costs, costs | {"latency_ms": 8.0}, budget=budget)
    with mock.patch("pcshrink.train.run.train", return_value=result):
        done = CliRunner().invoke(app, ["train", "digits", "--out", str(tmp_path / "out"), "-q"])
    assert done.exit_code == 3, done.output
    assert "budget: 0.6 of the dense latency (onnxruntime), measured 0.800 (0.780 to 0.820); MISSED" in done.output
    assert "latency, onnxruntime" in done.output
