"""A comparison with real children: one is killed, all are interrupted, all go on, an ablation shares them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from pcshrink.cli.main import main
from pcshrink.common.child import end_with_parent
from pcshrink.methods.baselines import Random, RandomConfig
from pcshrink.methods.registry import METHODS
from pcshrink.sweep.compare import compare
from pcshrink.sweep.runs import Outcome, read_result
from pcshrink.sweep.table import Report
from pcshrink.sweep.timing import time_all
from pcshrink.train.recipe.read import load_recipe

RECIPE: dict[str, Any] = {
    "model": {"name": "digitsnet", "args": {"widths": [4, 4, 8]}},
    "data": {"name": "digits", "batch_size": 64},
    "epochs": {"dense": 1, "shrink": 2, "settle": 4},
    "train": {"threads": 1},
    "shrink": {"budget": {"madds": 0.6}, "gates": "fold", "compact_every": 1},
    "output": {"latency": False, "checkpoint_steps": 8},
}
ROWS = ("pcs", "random")


@dataclass
class Called:
    """What a command printed and ended with."""

    code: int
    out: str
    err: str


@dataclass
class Story:
    """The same comparison, first disturbed, then called again."""

    folder: Path
    recipe: Path
    disturbed: Report
    told: list[str]
    again: Called


def call(*words: str) -> Called:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["pcshrink", *words])
        with pytest.raises(SystemExit) as stop:
            main()
    return Called(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def wait_until(holds: Any, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def disturb(folder: Path, children: dict[str, subprocess.Popen[bytes]], told: list[str]) -> None:
    """Kill one child when both have gone some steps, then interrupt everything."""
    runs = [f"{name}-0.6-s0" for name in ROWS]
    wait_until(lambda: all(len(list((folder / run).glob("checkpoints/*-*[1-9]*.safetensors"))) > 1 for run in runs))
    os.kill(children["random-0.6-s0"].pid, signal.SIGKILL)
    wait_until(lambda: any("failed" in line for line in told))
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    place = tmp_path_factory.mktemp("sweep")
    folder, recipe = place / "out", place / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    told: list[str] = []
    children: dict[str, subprocess.Popen[bytes]] = {}
    popen = subprocess.Popen

    def noting(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert options["preexec_fn"] is end_with_parent  # killed, it takes its children along
        child = popen(command, **options)
        children[Path(command[command.index("--out") + 1]).name] = child
        return child

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", noting)
        watcher = threading.Thread(target=disturb, args=(folder, children, told), daemon=True)
        watcher.start()
        disturbed = compare(load_recipe(recipe), folder, methods=ROWS, budgets=[0.6], seeds=1, jobs=2, say=told.append)
        watcher.join()
    words = ["compare", str(recipe), "--out", str(folder), "--methods", "random,pcs", "--seeds", "1", "--jobs", "2"]
    return Story(folder, recipe, disturbed, told, call(*words, "--budgets", "0.6"))


pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(900)]  # a child takes seconds to begin


def test_a_killed_child_is_a_row_and_an_interrupt_stops_the_others(story: Story) -> None:
    assert story.disturbed.stopped == signal.SIGINT
    reasons = {row["method"]: row["reason"] for row in story.disturbed.table.rows}
    assert reasons["random"].startswith("ended by SIGKILL")
    assert reasons["pcs"] == "stopped; the same command goes on"
    assert story.disturbed.table.failed == 2


def test_what_runs_and_what_is_left_is_told(story: Story) -> None:
    told = "\n".join(story.told)
    assert "[1/1] dense begins; 0 to come" in told
    assert "[1/2] pcs-0.6-s0 begins; 1 to come" in told
    assert "[2/2] random-0.6-s0 begins; 0 to come" in told
    assert re.search(r"random-0\.6-s0 failed after \d+ s: ended by SIGKILL", told)
    assert "stopping: pcs-0.6-s0 write their checkpoints" in told


def test_the_same_command_goes_on_from_checkpoints(story: Story) -> None:
    assert story.again.code == 0, story.again.err
    assert "dense begins" not in story.again.err
    for run in ("pcs-0.6-s0", "random-0.6-s0"):
        assert f"{run} goes on from its checkpoint" in story.again.err
        assert "going on at epoch" in (story.folder / run / "log.txt").read_text()


def test_all_start_from_one_dense_network(story: Story) -> None:
    starts = {yaml.safe_load(path.read_text())["model"]["weights"] for path in story.folder.glob("*-s0/recipe.yaml")}
    assert starts == {str((story.folder / "dense" / "model" / "model.safetensors").resolve())}
    results = [json.loads(path.read_text()) for path in story.folder.glob("*-s0/result.json")]
    assert len(results) == 2
    assert len({result["dense"]["error"] for result in results}) == 1


def test_the_table_says_what_the_runs_came_to(story: Story) -> None:
    rows = json.loads((story.folder / "compare.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["dense", "random", "pcs"]
    for row in rows[1:]:
        result = json.loads((story.folder / row["runs"][0] / "result.json").read_text())
        assert row["error"] == result["compact"]["error"]
        assert row["madds"] == result["compact"]["madds"]
        assert row["madds_share"] == pytest.approx(0.6, abs=0.05)
        assert (row["budget"], row["epochs"], row["kind"], row["reason"]) == (0.6, 6, "static", "")


def test_networks_are_timed_beside_the_dense_one_after_all_runs(story: Story) -> None:
    places = [story.folder / f"{name}-0.6-s0" for name in ROWS]
    outcomes = time_all([Outcome(place, read_result(place)) for place in places])
    shares = [json.loads((place / "latency.json").read_text())["share"] for place in places]
    assert [outcome.latency_share for outcome in outcomes] == shares
    assert all(share > 0 for share in shares)
    assert time_all([Outcome(None, None, "refused")])[0].latency_share is None
    told: list[str] = []
    assert time_all([Outcome(story.folder, {"compact": {}})], told.append)[0].latency_share is None
    assert "could not be timed" in told[0]


def test_text_csv_and_json_agree(story: Story) -> None:
    rows = json.loads((story.folder / "compare.json").read_text())["rows"]
    listed = list(csv.DictReader(io.StringIO((story.folder / "compare.csv").read_text())))
    text = (story.folder / "compare.txt").read_text()
    assert text.strip() in story.again.out
    lines = text.splitlines()[-len(rows) :]
    for row, from_csv, line in zip(rows, listed, lines, strict=True):
        assert from_csv["method"] == row["method"] == line.split()[0]
        assert float(from_csv["error"]) == row["error"]
        assert f"{row['error']:.2f}" in line
        assert f"{row['madds']:,}" in line
        assert int(from_csv["madds"]) == row["madds"]


def test_the_figure_is_an_svg_with_every_row(story: Story) -> None:
    root = ElementTree.fromstring((story.folder / "compare.svg").read_text())
    assert root.tag.endswith("svg")
    told = " ".join(root.itertext())
    assert all(name in told for name in ("dense", "pcs", "random"))


class Unknown(Random):
    """Known to this process only."""

    Config = dataclass(frozen=True, kw_only=True)(type("UnknownConfig", (RandomConfig,), {"method": "elsewhere"}))


def test_finished_runs_are_not_run_again_and_a_failed_one_is_a_row_with_its_own_words(story: Story) -> None:
    before = (story.folder / "random-0.6-s0" / "result.json").stat().st_mtime_ns
    told: list[str] = []
    recipe, methods = load_recipe(story.recipe), ["random", "elsewhere"]
    with METHODS.only(elsewhere=Unknown):
        report = compare(recipe, story.folder, methods=methods, budgets=[0.6], seeds=1, say=told.append)
    assert told[0] == "[1/1] elsewhere-0.6-s0 begins; 0 to come"
    assert (story.folder / "random-0.6-s0" / "result.json").stat().st_mtime_ns == before
    good, bad = report.table.rows[1:]
    assert (good["reason"], good["seeds"]) == ("", "1")
    assert "unknown method 'elsewhere'" in bad["reason"]
    assert (bad["error"], bad["seeds"]) == (None, "0/1")
    assert bad["reason"] in report.table.text()


def test_an_ablation_in_the_same_folder_takes_equal_runs_as_they_are(story: Story) -> None:
    over = ["--over", "shrink.method=random,pcs"]
    shown = call("ablate", str(story.recipe), "--out", str(story.folder), *over)
    assert shown.code == 0, shown.err
    assert "begins" not in shown.err
    rows = json.loads((story.folder / "shrink.method.json").read_text())["rows"]
    assert [row["setting"] for row in rows] == ["dense", "shrink.method=random", "shrink.method=pcs"]
    assert [row["runs"] for row in rows[1:]] == [["random-0.6-s0"], ["pcs-0.6-s0"]]
    assert rows[1]["change"] == pytest.approx(rows[1]["error"] - rows[0]["error"])


def test_another_recipe_is_refused_and_nothing_is_lost(story: Story) -> None:
    before = sorted(path.name for path in story.folder.iterdir())
    words = ["compare", str(story.recipe), "--set", "optimizer.lr=0.2", "--out", str(story.folder)]
    shown = call(*words)
    assert shown.code == 2
    assert "are of another recipe (different: optimizer); give the same" in shown.err
    assert len(shown.err.splitlines()) == 1
    assert sorted(path.name for path in story.folder.iterdir()) == before
