"""The long trainings: every run can be said, and what is kept of one lets it go on or lets others take its widths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.trial import keeping, running
from benchmarks.trial.rows import LEARNED, run_names, split_name
from pcshrink.methods.registry import method_class


def test_every_run_has_a_recipe_of_its_method_and_seed() -> None:
    for run in run_names():
        row, seed = split_name(run)
        recipe = running.recipe_of(run, Path("data/cifar10"))
        assert recipe.seed == seed
        assert recipe.shrink is not None
        takes_budget = method_class(recipe.shrink.method).takes_budget()
        assert (recipe.shrink.budget is not None) == (takes_budget and row.like is None), run
        assert (recipe.shrink.like is not None) == (row.like is not None), run


def test_a_row_that_takes_widths_waits_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "KEPT", tmp_path)
    assert running.is_ready(f"{LEARNED}-0")
    assert not running.is_ready("random-0")
    (tmp_path / f"{LEARNED}-0").mkdir()
    (tmp_path / f"{LEARNED}-0" / "result.json").write_text("{}")
    assert running.is_ready("random-0")
    assert not running.is_ready("random-1")


def test_keeping_takes_results_of_finished_and_the_newest_checkpoint_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, unfinished, runs = tmp_path / "kept", tmp_path / "unfinished", tmp_path / "runs"
    monkeypatch.setattr(keeping, "KEPT", kept)
    monkeypatch.setattr(keeping, "UNFINISHED", unfinished)
    going = runs / f"{LEARNED}-1"
    (going / "checkpoints").mkdir(parents=True)
    (going / "recipe.yaml").write_text("seed: 1")
    for step in (10, 20):
        (going / "checkpoints" / f"checkpoint-{step:010d}.safetensors").write_text(str(step))
    keeping.keep_all(runs)
    assert [f.read_text() for f in (unfinished / f"{LEARNED}-1" / "checkpoints").iterdir()] == ["20"]

    (going / "model").mkdir()
    (going / "model" / "pcshrink.json").write_text("{}")
    (going / "result.json").write_text(json.dumps({"compact": {"error": 8.0}}))
    keeping.keep_all(runs)
    assert (kept / f"{LEARNED}-1" / "model" / "pcshrink.json").is_file()
    assert not (unfinished / f"{LEARNED}-1").exists()


def test_an_unknown_run_is_said() -> None:
    with pytest.raises(SystemExit, match="there is no run 'lerned-0'"):
        split_name("lerned-0")
