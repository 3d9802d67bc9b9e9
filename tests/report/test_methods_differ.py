"""The report says of each kind of method what is true for it: gates that choose for each input cut nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pcshrink.report.compare import open_runs
from pcshrink.report.info import describe_folder
from pcshrink.report.network import group_shares, layer_rows
from pcshrink.report.page import sections
from pcshrink.report.parts import Figure, Section
from pcshrink.report.salience import CASES, traces
from pcshrink.train.history import History
from pcshrink.train.outcome import Dynamic
from pcshrink.train.run import train
from testing.made_runs import made_run
from testing.training import tiny


def with_method(folder: Path, method: str, **settings: Any) -> Path:
    """A made run as if by another method."""
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    recipe["shrink"] |= {"method": method} | settings
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def dynamic_run(folder: Path) -> Path:
    """A made run of a method whose gates choose for each input: all but half of conv1 runs."""
    made_run(folder)
    shutil.rmtree(folder / "model")
    result = json.loads((folder / "result.json").read_text())
    dense = result["dense"]
    measured = Dynamic(
        convention="layers", images=360, madds=0.9 * dense["madds"], madds_std=1.0, madds_least=1.0, madds_most=2.0,
        dense_madds=dense["madds"], gate_madds=10, params=dense["params"] + 10, mem_access=dense["mem_access"],
        shares={"conv1": 0.5},
    )  # fmt: skip
    costs = {"params": measured.params, "madds": round(measured.madds), "mem_access": measured.mem_access}
    result |= {"cut": None, "widths": {}, "dynamic": measured.to_dict(), "compact": result["compact"] | costs}
    (folder / "result.json").write_text(json.dumps(result))
    return with_method(folder, "fbs")


def parts(*folders: Path) -> tuple[dict[str, Section], dict[str, Figure]]:
    found = sections(open_runs(folders))
    return {part.key: part for part in found}, {figure.key: figure for part in found for figure in part.figures}


@pytest.mark.unit
def test_a_method_that_chooses_for_each_input_cuts_nothing(tmp_path: Path) -> None:
    folder = dynamic_run(tmp_path / "dynamic")
    (run,) = open_runs([folder])
    left = {row.name: row.madds_after / row.madds_before for row in layer_rows(run)}
    assert left.pop("conv1") == 0.5
    assert set(left.values()) == {1.0}
    said, figures = parts(folder)
    assert not {"group-widths", "width-ratio", "width-over-time"} & set(figures)
    assert "mean over the evaluation images" in figures["layer-madds"].caption
    assert not any(">cut<" in svg for figure in figures.values() for _, svg in figure.charts)
    assert "nothing is cut, so there is nothing to prove" in said["proof"].missing[0]
    assert "dynamic has no widths" in said["widths"].missing[0]
    assert "mean input>" in said["verdict"].tables[0].columns
    assert "90.0 % of the multiply-adds are left" in said["verdict"].text[0]


@pytest.mark.unit
def test_beside_one_that_cuts_only_that_one_has_widths(tmp_path: Path) -> None:
    _, figures = parts(made_run(tmp_path / "cut"), dynamic_run(tmp_path / "dynamic"))
    assert [name for name, _ in figures["group-widths"].charts] == ["cut"]
    assert "dynamic" not in figures["width-ratio"].charts[0][1]
    assert "dynamic" in figures["layer-madds"].charts[0][1]


@pytest.mark.unit
def test_only_saliences_are_drawn_as_such(tmp_path: Path) -> None:
    said, figures = parts(made_run(tmp_path / "pcs"), with_method(made_run(tmp_path / "norms"), "sfp"))
    assert [heading.partition(":")[0] for heading, _ in figures["salience"].charts] == ["pcs"] * 4
    assert all(">running salience<" in svg for _, svg in figures["salience"].charts)
    said, figures = parts(tmp_path / "norms")
    assert "salience" not in figures
    assert "width-over-time" in figures
    assert "norms has no traces of single channels" in said["salience"].missing[0]


@pytest.mark.unit
def test_what_did_not_die_did_not_shrink_whatever_was_selected(tmp_path: Path) -> None:
    history = History.open(made_run(tmp_path / "made"))
    gentle = {name: replace(trace, salience=np.maximum(trace.salience, 0.3)) for name, trace in history.groups.items()}
    found = traces(replace(history, groups=gentle), dead_at=0.001)
    assert found is not None
    assert {CASES[kind] for kind in found.case} == {"no shrinking", "shrinking to no shrinking"}


@pytest.mark.train
def test_layers_that_a_method_splits_are_counted_with_their_parts(tmp_path: Path) -> None:
    short: dict[str, Any] = {"epochs": {"shrink": 2, "settle": 1}, "output": {"latency": False}, "distill": None}
    train(tiny(shrink={"method": "hinge", "budget": {"madds": 0.6}}, **short), tmp_path / "split", quiet=True)
    (run,) = open_runs([tmp_path / "split"])
    rows = layer_rows(run)
    assert sum(row.madds_before for row in rows) == run.dense["madds"]
    assert sum(row.madds_after for row in rows) == pytest.approx(run.compact["madds"])
    shares = group_shares(run)
    assert all(0 < after <= before for before, after in shares.values())
    assert any(after < before for before, after in shares.values())


@pytest.mark.unit
@pytest.mark.parametrize(("low", "word"), [(0.5, "not shown to be met"), (0.64, "missed")])
def test_the_verdict_and_info_say_what_is_not_known_of_a_latency(low: float, word: str, tmp_path: Path) -> None:
    folder = made_run(tmp_path / "timed")
    budget = {"metric": "latency", "runtime": "eager", "limit": 0.6, "note": "", "share": 0.66}
    budget |= {"reached": 0.66, "low": low, "high": 0.7}
    result = json.loads((folder / "result.json").read_text())
    place = {"folder": str(folder), "model_dir": str(folder / "model")}
    (folder / "result.json").write_text(json.dumps(result | place | {"budget": budget}))
    said, _ = parts(folder)
    assert f"measured 0.660 ({low:.3f} to 0.700): {word}." in said["proof"].text[-1]
    assert word in describe_folder(folder)["run"]["budget"].lower()
