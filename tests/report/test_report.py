"""The report: says what the files say, in order, with every figure's numbers, and one clear line for what is wrong."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import threading
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pcshrink.cli.main import main as command_line
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.report.compare import interval, open_runs
from pcshrink.report.network import group_shares, layer_rows
from pcshrink.report.page import render, sections, write_report
from pcshrink.report.runs import open_run
from pcshrink.report.salience import CASES, traces
from pcshrink.report.tradeoff import points
from pcshrink.train.history import History
from pcshrink.train.history.blocks import FILE as HISTORY
from testing.hurry import short_timings
from testing.made_runs import made_run
from testing.training import TINY

ORDER = ["verdict", "proof", "tradeoff", "widths", "training", "salience", "times", "stays", "classes", "origin"]
FIGURES = {
    "tradeoff", "tradeoff-latency", "group-widths", "width-ratio", "layer-madds", "training", "step-loss",
    "width-over-time", "salience", "network", "class-error",
}  # fmt: skip
LARGEST = 1_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("runs") / "second", shift=0.5)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pcshrink", *words])
    with pytest.raises(SystemExit) as stop:
        command_line()
    return int(stop.value.code or 0)


class Page(HTMLParser):
    """What a page holds: ids in order, links, pictures with their alternatives, words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.outside: list[str] = []
        self.pictures: list[str | None] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if tag == "section":
            self.ids.append(str(values.get("id")))
        if tag == "svg":
            self.pictures.append(values.get("aria-label"))
        for name in ("src", "href", "xlink:href"):
            if values.get(name, "") and not str(values[name]).startswith(("#", "data:")):
                self.outside.append(str(values[name]))

    def handle_data(self, data: str) -> None:
        self.words += f" {data}"


@pytest.mark.unit
def test_the_sections_come_in_order_and_nothing_is_loaded(run: Path, tmp_path: Path) -> None:
    write_report([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert page.ids == ORDER
    assert page.outside == []
    assert "script" not in page.tags
    assert "url(" not in text
    assert len(text.encode()) < LARGEST
    assert len(page.pictures) > 12
    assert all(label and len(label) > 20 for label in page.pictures)
    assert "media (prefers-color-scheme: dark)" in text
    assert "@media print" in text


@pytest.mark.unit
def test_it_says_what_the_files_say(run: Path, tmp_path: Path) -> None:
    words = " ".join(Page(render(open_runs([run]))).words.split())
    assert "the error went from 4.00 % to 5.00 % (+1.00 points)" in words
    low, high = interval(5.0, 360)
    assert f"{low:.2f} to {high:.2f}" in words
    assert "leak 0.01 highest score cut 0 masked = compact yes" in words
    assert "pcshrink train <made> --out runs/made" in words  # escaped on the page, whole for the reader
    assert "fc network output" in words
    assert open_run(run).saved.weights_sha256 in words  # type: ignore[union-attr]


@pytest.mark.unit
def test_a_run_that_cut_nothing_says_so(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "made")
    result = json.loads((folder / "result.json").read_text())
    costs = {key: value for key, value in result["dense"].items() if "error" not in key}
    (folder / "result.json").write_text(json.dumps(result | {"compact": result["compact"] | costs}))
    words = " ".join(Page(render(open_runs([folder]))).words.split())
    assert "The error went from 4.00 % to 5.00 % (+1.00 points)" in words
    assert "made: no channel reached zero, so none was cut." in words
    errors = {(kind, error) for _, kind, _, error in points(open_runs([folder]), "madds")}
    assert errors == {("dense", 4.0), ("compact", 5.0)}  # each by its own name, though they cost the same


@pytest.mark.unit
def test_every_figure_has_its_numbers(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["report", str(run), "--out", str(tmp_path / "r.html"), "--csv", str(tmp_path / "csv")]
    assert call(monkeypatch, *words, "--svg", str(tmp_path / "svg")) == 0
    files = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in (tmp_path / "csv").iterdir()}
    assert set(files) == FIGURES
    history = History.open(run)
    assert [float(row["task"]) for row in files["step-loss"]] == pytest.approx(history.steps.task.tolist())
    assert {row["error"] for row in files["tradeoff"]} == {"4.0", "5.0"}
    assert [(row["latency"], row["error"]) for row in files["tradeoff-latency"]] == [("1.0", "4.0"), ("0.5", "5.0")]
    assert len(files["salience"]) == sum(trace.salience.shape[1] for trace in history.groups.values()) * 8
    assert all(int(row["after"]) * 2 == int(row["before"]) for row in files["group-widths"])
    pictures = list((tmp_path / "svg").iterdir())
    assert {re.sub(r"-\d+$", "", path.stem) for path in pictures} == FIGURES
    for path in pictures:
        assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.unit
def test_layers_and_groups_add_up_to_the_saved_network(run: Path) -> None:
    (opened,) = open_runs([run])
    rows = layer_rows(opened)
    assert sum(row.madds_before for row in rows) == opened.dense["madds"]
    assert sum(row.madds_after for row in rows) == pytest.approx(opened.compact["madds"])
    assert {row.name: row.width_ratio for row in rows}["fc"] == 1.0
    shares = group_shares(opened)
    assert sum(before for before, _ in shares.values()) == pytest.approx(1, abs=0.01)  # all but the classifier


@pytest.mark.unit
def test_what_is_left_of_layers_is_not_guessed_without_the_saved_network(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "made")
    shutil.rmtree(folder / "model")
    (opened,) = open_runs([folder])
    assert {after for _, after in group_shares(opened).values()} == {None}
    text = render([opened])
    assert "Width ratio by layer" not in text
    assert "Multiply-adds by layer" not in text
    words = " ".join(Page(text).words.split())
    assert "what is left of each layer is told by its saved network, which is not there" in words


@pytest.mark.unit
def test_the_four_cases_are_told_apart(run: Path) -> None:
    history = History.open(run)
    found = traces(history, dead_at=0.001)
    assert found is not None
    case = {name: CASES[kind] for name, kind in zip(found.names, found.case, strict=True)}
    assert case["conv1", 0] == "shrinking to no shrinking"
    assert case["conv1", 1] == "no shrinking to shrinking"
    assert case["conv1", 2] == "no shrinking"
    assert case["conv1", 15] == "shrinking"
    groups = len(history.groups)
    channels = sum(trace.salience.shape[1] for trace in history.groups.values())
    assert np.bincount(found.case).tolist() == [channels // 2 - groups, channels // 2 - groups, groups, groups]
    assert found.salience[-1][found.names.index(("conv1", 15))] == 0  # cut, so 0 from then on
    words = Page(render(open_runs([run]))).words
    assert f"shrinking to no shrinking, {groups} of {channels} channels" in words


@pytest.mark.unit
def test_several_runs_share_their_axes(run: Path, other: Path, tmp_path: Path) -> None:
    found = {figure.key: figure for part in sections(open_runs([run, other])) for figure in part.figures}
    assert [heading for heading, _ in found["group-widths"].charts] == ["first", "second"]
    for key in ("width-over-time", "group-widths"):
        ticks = [re.findall(r"<text[^>]*>([\d.]+)</text>", svg) for _, svg in found[key].charts]
        assert ticks[0] == ticks[1]
    assert len(found["salience"].charts) == 8
    assert all(name in found["step-loss"].charts[0][1] for name in ("first", "second"))
    text = render(open_runs([run, other]))
    assert Page(text).ids == ORDER
    assert len(text.encode()) < LARGEST


@pytest.mark.unit
def test_a_run_without_history_says_what_is_missing(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "old", history=False)
    page = Page(render(open_runs([folder])))
    assert page.ids == ORDER
    assert "Losses of single steps were not recorded." in page.words
    assert "The scores were not recorded" in page.words
    assert "its layers were not timed" in page.words
    assert "Width ratio by layer" in page.words  # the network is built again


@pytest.mark.unit
def test_a_run_that_goes_on(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "going", finished=False)
    page = Page(render(open_runs([folder]), refresh=10))
    assert "going is still running: 2 of 12 epochs are done, the error is 25.00\u00a0%." in page.words
    assert page.ids == ORDER
    with (folder / HISTORY).open("ab") as file:
        file.write(b"half a block")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "lo')
    assert "2 of 12 epochs" in Page(render(open_runs([folder]))).words


@pytest.mark.unit
def test_a_live_report_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, result = made_run(tmp_path / "going", finished=False), made_run(tmp_path / "done") / "result.json"
    ending = threading.Timer(0.5, lambda: result.replace(folder / "result.json"))
    ending.start()
    assert call(monkeypatch, "report", str(folder), "--live", "1") == 0
    ending.join()
    text = (folder / "report.html").read_text()
    assert "still running" not in text
    assert "http-equiv" not in text


@pytest.mark.unit
def test_a_kept_run_of_the_zoo() -> None:
    root = Path(__file__).resolve().parents[2]
    runs = open_runs([root / "tests" / "artifact" / "first_schema", root / "zoo" / "resnet20-dense"])
    page = Page(render(runs))
    assert "the error is 8.96\u00a0%" in page.words
    assert runs[0].dense["madds"] == 40_813_184
    labels = next(label for label in page.pictures if label and label.startswith("Error against multiply-adds"))
    assert "published ManiDP: 8.0 % at 19 M" in labels
    assert "about 18.8 M by its own paper" in page.words  # a slip of the printed table is not told as a fact


@pytest.mark.unit
def test_a_resnet_of_two_hundred_epochs_fits(tmp_path: Path) -> None:
    sizes = {"name": "resnet56", "data": "cifar10", "shape": (3, 32, 32), "epochs": 67, "steps": 60}
    folders = [made_run(tmp_path / name, **sizes) for name in ("one", "two")]  # type: ignore[arg-type]
    assert len(render(open_runs(folders)).encode()) < LARGEST


@pytest.mark.unit
def test_layers_are_timed_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_timings(monkeypatch.setattr)
    folder = made_run(tmp_path / "timed")
    assert call(monkeypatch, "report", str(folder), "--time", "--runtime", "eager") == 0
    words = Page((folder / "report.html").read_text()).words
    assert "timed, eager, one sample, 1 thread:" in words
    assert "Time of every layer, dense and compact" in words


@pytest.mark.unit
def test_names_are_escaped(tmp_path: Path) -> None:
    folder = made_run(tmp_path / "<b>&'")
    text = render(open_runs([folder]))
    assert "<b>" not in text
    assert Page(text).ids == ORDER


MISTAKES = {
    "a folder that is no run": (["{tmp}"], r"is no run: it has no recipe.yaml; name the folder that"),
    "no folder": (["{tmp}/nowhere"], r"is no run: it is no folder"),
    "no epoch yet": (["{tmp}/young"], r"has no finished epoch yet"),
    "no epoch yet in the second": (["{run}", "{tmp}/young"], r"young has no finished epoch yet"),
    "twice": (["{run}", "{run}/"], r"is named twice"),
    "other data": (["{run}", "{zoo}"], r"do not fit: one was measured on digits, the other on cifar10"),
    "unwritable": (
        ["{run}", "--out", "{run}/recipe.yaml/report.html"],
        r"cannot write .*report.html: its folder is a file",
    ),
    "a folder as target": (["{run}", "--out", "{tmp}"], r"cannot write \S+: it is a folder; choose another place"),
    "a damaged result": (["{tmp}/damaged"], r"result.json is damaged"),
    "a history of another kind": (["{tmp}/foreign"], r"history.bin is not a history"),
    "a live report of nothing": (["{tmp}/young", "--live", "1"], r"has no finished epoch yet"),
    "no such figure": (
        ["{run}", "--figure", "widths"],
        r"there is no figure widths .* there are tradeoff, tradeoff-latency, group-widths",
    ),
    "timing a run that goes on": (["{tmp}/going", "--time"], r"has no saved network yet"),
    "timing on no runtime": (["{run}", "--time", "--runtime", "abacus"], r"abacus"),
}


@pytest.mark.unit
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_clear_line(
    mistake: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, expected = MISTAKES[mistake]
    if any("young" in word for word in words):
        (tmp_path / "young").mkdir()
        (tmp_path / "young" / "recipe.yaml").write_text((run / "recipe.yaml").read_text())
    if any("damaged" in word for word in words):
        made_run(tmp_path / "damaged", finished=False)
        (tmp_path / "damaged" / "result.json").write_text("{")
    if any("foreign" in word for word in words):
        made_run(tmp_path / "foreign", finished=False)
        (tmp_path / "foreign" / HISTORY).write_bytes(b"?")
    if any("going" in word for word in words):
        made_run(tmp_path / "going", finished=False)
    zoo = Path(__file__).resolve().parents[2] / "zoo" / "resnet20-dense"
    assert call(monkeypatch, "report", *(word.format(tmp=tmp_path, run=run, zoo=zoo) for word in words)) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pcshrink: ")]
    assert len(told) == 1
    assert re.search(expected, told[0])


@pytest.mark.unit
def test_from_python_mistakes_are_typed(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        write_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(ConfigError):
        write_report([run] * 9, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.unit
def test_inspect_as_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.html"
    assert call(monkeypatch, "inspect", "digitsnet", "--input", "1,8,8", "--html", str(path)) == 0
    page = Page(path.read_text())
    assert page.ids == ["left", "groups", "stays"]
    assert page.outside == []
    assert "group 1: written by conv1, layer1.0.conv2" in str(page.pictures[0])
    assert "network output" in page.words
    assert call(monkeypatch, "inspect", "digitsnet", "--html", str(path / "no.html")) == 2
    assert "pcshrink: cannot write" in capsys.readouterr().err


@pytest.mark.train
def test_a_run_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    content = TINY | {"epochs": {"dense": 1}, "output": {"latency": False, "report": 1}}
    recipe = {key: value for key, value in content.items() if key not in ("shrink", "distill")}
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(recipe))
    words = ["train", str(tmp_path / "plain.yaml"), "--out", str(tmp_path / "run"), "--quiet"]
    assert call(monkeypatch, *words) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert Page(page).ids == ORDER
    assert "http-equiv" not in page  # the last one does not load itself again
