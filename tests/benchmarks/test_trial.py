"""The long trainings: every run can be said, and what is kept of one lets it go on or lets others take its widths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.trial import ablations, keeping, rivals, running, table
from benchmarks.trial.push import push_table
from benchmarks.trial.rows import ABLATIONS, LEARNED, run_names, split_name
from pcshrink.methods.registry import method_class

SAME = {"K = 1/2 C", "B, lambda = 6e-6", "pcs, running", "pcs"}  # what the method does unless told otherwise


def test_every_run_has_a_recipe_of_its_method_and_seed() -> None:
    for run in run_names():
        row, seed = split_name(run)
        recipe = running.recipe_of(run, Path("data/cifar10"))
        assert recipe.seed == seed
        if row.plain or row.recipe.endswith("-dense") or "shrink.budget=null" in row.settings:
            assert recipe.shrink is None or recipe.shrink.budget is None
            continue
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
    assert not running.is_ready("fpgm32-0")
    (tmp_path / "start32-0").mkdir()
    (tmp_path / "start32-0" / "result.json").write_text("{}")
    assert running.is_ready("fpgm32-0")


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
    first = runs / "uniform-0"
    first.mkdir()
    for folder in (going, first):
        (folder / "history.bin").write_text("every step")
        (folder / "result.json").write_text(json.dumps({"compact": {"error": 8.0}}))
    keeping.keep_all(runs)
    assert (kept / f"{LEARNED}-1" / "model" / "pcshrink.json").is_file()
    assert not (unfinished / f"{LEARNED}-1").exists()
    assert (kept / "uniform-0" / "history.bin").is_file()
    assert not (kept / f"{LEARNED}-1" / "history.bin").exists()  # figures are drawn of first seeds


def test_rows_of_a_table_have_the_same_epochs_and_what_is_the_same_is_one_run() -> None:
    for rows in ABLATIONS.values():
        assert {running.recipe_of(f"{row.name}-0", Path("data/cifar10")).epochs.total for row in rows} == {30}
    names = [row.name for rows in ABLATIONS.values() for row in rows if row.title in SAME]
    assert len(names) == 4
    assert len(set(names)) == 1


def test_the_page_of_ablations_has_our_rows_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "ablations.md"
    monkeypatch.setattr(ablations, "ABLATIONS_PAGE", page)
    monkeypatch.setattr(table, "KEPT", tmp_path)
    ablations.write_ablations()
    assert not page.exists()
    for row, error, madds in zip(ABLATIONS["generator"], (8.0, 7.5), (40.0, 41.0), strict=True):
        result = {"dense": {"paper_madds": 40.0}, "compact": {"error": error, "paper_madds": madds}}
        folder = tmp_path / f"{row.name}-0"
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "metrics.jsonl").write_text("")
    ablations.write_ablations()
    lines = page.read_text().splitlines()
    assert "| no generator | 8.00 | +0.00 | 100% | 29.6 | +0.0 | 100% |" in lines
    assert "| generator, K = 0 | 7.50 | -0.50 | 102% | 28.8 | -0.8 | 100% |" in lines
    assert "## alpha" not in lines  # nothing of it is finished


def test_the_page_of_rivals_has_the_papers_figures_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "rivals.md"
    monkeypatch.setattr(rivals, "RIVALS_PAGE", page)
    monkeypatch.setattr(table, "KEPT", tmp_path)
    network = {"error": 9.0, "paper_madds": 17.6e6, "params": 150000, "paper_mem_access": 3e5}
    finished = {f"{LEARNED}-0": 9.0, f"{LEARNED}-1": 9.4, "fbs-0": 9.5, "start32-0": 7.9, f"{LEARNED}32-0": 8.1}
    for name, error in finished.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("")
        (tmp_path / name / "result.json").write_text(json.dumps({"compact": network | {"error": error}}))
    rivals.write_rivals()
    lines = page.read_text().splitlines()
    learned = "| PCS, learned widths | static | 2 | 9.20 | 0.28 | 17.60 M | 150,000 | 0.300 M | 8.0 | 17.6 M |"
    assert learned in lines
    assert "| FBS | dynamic | 1 | 9.50 |  | 17.60 M | 150,000 | 0.300 M | 9.0 | 19.2 M |" in lines
    assert any(line.startswith("- Hinge: printed so") for line in lines)
    assert "ResNet-32 in the same way, from a dense network of 7.90 %:" in lines
    assert "| PCS, learned widths | static | 1 | 8.10 |  | 17.60 M | 150,000 | 0.300 M | 7.6 | 24.9 M |" in lines


def test_findings_show_what_a_single_change_does_to_a_network_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "findings.md"
    parts = ("before", table.BEGIN, "old", table.END, "between", table.PUSH_BEGIN, "old", table.PUSH_END, "after", "")
    page.write_text("\n".join(parts))
    monkeypatch.setattr(table, "FINDINGS", page)
    readme = tmp_path / "README.md"
    readme.write_text(f"head\n{table.BEGIN}\nold\n{table.END}\nfoot\n")
    monkeypatch.setattr(table, "README", readme)
    monkeypatch.setattr(table, "KEPT", tmp_path)
    for seed, error, loss in ((0, 8.0, 0.5), (1, 8.4, 0.7)):
        folder = tmp_path / f"again-mixup-{seed}"
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps({"compact": {"error": error}}))
        (folder / "metrics.jsonl").write_text(f'{{"loss": 9.0}}\n{{"loss": {loss}}}\n')
    table.write_table()
    text = page.read_text()
    assert "| Muon, mixup 0.2 | 2 | 8.20 | 0.28 | 0.600 |" in text.splitlines()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "\nbetween\n" in text
    assert "old" not in text
    assert readme.read_text() == (
        f"head\n{table.BEGIN}\n| | seeds | error, % | spread |\n|---|---|---|---|\n{table.END}\nfoot\n"
    )


def test_an_unknown_run_is_said() -> None:
    with pytest.raises(SystemExit, match="there is no run 'lerned-0'"):
        split_name("lerned-0")


def test_the_push_stands_beside_its_twin_epoch_by_epoch() -> None:
    def epochs(*errors: float | None) -> list[dict[str, object]]:
        rest = {"phase": "shrink", "loss": 0.5, "madds_share": 0.9, "lambda": 1e-3, "highest_selected": 0.8}
        return [rest | {"epoch": place, "error": error} for place, error in enumerate(errors)]

    lines = push_table(epochs(None, 20.0, None, 25.0), epochs(None, 21.0, None, 22.0)).splitlines()
    assert lines[0] == "| epoch | 2 | 4 |"
    assert "| error, % of the twin | 21.0 | 22.0 |" in lines
    assert lines[-1] == (
        "Largest error 25.0 %, that of the twin 22.0 %: +3.0 points. Mean difference of the epochs: +1.0 points."
    )
    assert "twin" not in push_table(epochs(20.0), [])
    assert push_table([], []) == ""
