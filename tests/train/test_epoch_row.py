"""The row of an epoch: what files and people get of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pcshrink.methods.figures import Figure
from pcshrink.methods.registry import method_class
from pcshrink.train.console import Console, describe, standing
from pcshrink.train.epoch_row import EpochRow

pytestmark = pytest.mark.unit
ROW = EpochRow(
    epoch=3, epochs=20, phase="shrink", step=44, loss=0.51234, penalty=0.1, error=None, val_loss=None, lr=0.05,
    seconds=12.34, images_per_second=100.0,
)  # fmt: skip
SIZED = replace(ROW, error=12.5, madds=2_500_000, madds_share=0.25, dead=7)


def told_by(method: str, **figures: float) -> tuple[Figure, ...]:
    return tuple(Figure(key, value, method_class(method).label(key)) for key, value in figures.items())


def test_what_was_not_measured_is_null_and_what_is_not_known_is_left_out() -> None:
    common = ["epoch", "epochs", "phase", "step", "loss", "penalty", "error", "val_loss", "lr", "seconds"]
    assert list(ROW.to_dict()) == [*common, "images_per_second"]
    assert ROW.to_dict()["error"] is None
    told = replace(SIZED, figures=told_by("pcs", **{"lambda": 0.001, "R": 5.0})).to_dict()
    assert list(told)[11:] == ["madds", "madds_share", "dead", "lambda", "R"]


def test_a_line_of_a_file_is_read_as_it_was_written_and_an_older_one_as_far_as_it_goes(tmp_path: Path) -> None:
    row = replace(SIZED, figures=told_by("fbs", density=0.5))
    console = Console(tmp_path, quiet=True)
    console.record(row)
    assert EpochRow.from_dict(json.loads(console.path.read_text())) == row
    older = EpochRow.from_dict({"epoch": 1, "loss": 2.0, "lambda": 0.1, "note": "text"})
    assert (older.epoch, older.loss, older.penalty, older.step) == (1, 2.0, None, None)
    assert [(figure.key, figure.value) for figure in older.figures] == [("lambda", 0.1)]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (ROW, "epoch 4/20 shrink   loss 0.5123  lr 0.05  12.3 s"),
        (
            replace(SIZED, figures=told_by("pcs", **{"lambda": 0.00123, "R": 5.0, "highest_selected": 0.75})),
            "epoch 4/20 shrink   loss 0.5123  error 12.50 %  lambda 1.23e-03  R 5.00  highest selected 0.750  "
            "madds 2.50 M (25.0 %)  dead 7  lr 0.05  12.3 s",
        ),
        (
            replace(SIZED, dead=None, figures=told_by("manidp", mean_loss=0.25)),
            "epoch 4/20 shrink   loss 0.5123  error 12.50 %  mean loss 0.25  madds 2.50 M (25.0 %)  "
            "for the mean input  lr 0.05  12.3 s",
        ),
    ],
    ids=["plain", "pcs", "dynamic"],
)
def test_people_read_what_the_method_calls_its_figures(row: EpochRow, line: str) -> None:
    assert describe(row) == line


def test_the_bar_shows_error_and_size() -> None:
    assert standing(ROW) == ""
    assert standing(SIZED) == ", error 12.50 %, madds 25 %"
