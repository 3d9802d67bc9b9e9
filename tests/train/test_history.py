"""The record of a run: whole up to wherever it was cut short, and the same whether or not the run was interrupted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcshrink.errors import CheckpointError
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.history import GroupState, History, HistoryWriter
from pcshrink.train.history.blocks import FILE
from pcshrink.train.interrupt import Interrupted
from pcshrink.train.loggers import Logger
from pcshrink.train.run import train
from testing.training import tiny

GROUPS = {"conv1": 6, "layer1": 4}
NETWORK = {"groups": [{"name": name, "channels": size} for name, size in GROUPS.items()]}


def state(name: str, channels: Sequence[int], salience: Sequence[float], k: int = 1) -> GroupState:
    values = np.array(salience, np.float32)
    selected = np.isin(np.arange(len(values)), np.argsort(values)[:k])
    return GroupState(
        name=name, channels=np.array(channels), salience=values, selected=selected, alive=int((values > 0.001).sum())
    )


def write_steps(writer: HistoryWriter, first: int, count: int) -> None:
    for step in range(first, first + count):
        writer.step(step + 0.5, step + 0.25, 0.25, 2.0 * step)


def write_epoch(writer: HistoryWriter, epoch: int, groups: Sequence[GroupState] = (), phase: str = "shrink") -> None:
    row = {"epoch": epoch, "phase": phase, "step": 5 * (epoch + 1), "loss": 1.0 / (epoch + 1), "error": None, "lr": 0.1}
    writer.epoch(EpochRow.from_dict({**row, "lambda": 0.01 * epoch, "R": 3.0}), groups)


@pytest.fixture
def writer(tmp_path: Path) -> HistoryWriter:
    """Two epochs of five steps, then a cut, then a third."""
    made = HistoryWriter(tmp_path)
    made.start({"seed": 3})
    write_steps(made, 0, 5)
    write_epoch(made, 0, phase="dense")
    made.network(NETWORK)
    write_steps(made, 5, 5)
    write_epoch(
        made, 1, [state("conv1", range(6), [0.9, 0, 0.8, 0.7, 0.6, 0.5]), state("layer1", range(4), [1, 1, 1, 0.2])]
    )
    made.cut(1, {"leak": 0.1}, {"conv1": 5, "layer1": 4})
    write_steps(made, 10, 5)
    write_epoch(
        made, 2, [state("conv1", [0, 2, 3, 4, 5], [0.9, 0.8, 0.7, 0.6, 0.1]), state("layer1", range(4), [1, 1, 1, 0])]
    )
    return made


def same(one: Any, other: Any) -> None:
    for left, right in zip(astuple(one), astuple(other), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.unit
def test_everything_comes_back(writer: HistoryWriter, tmp_path: Path) -> None:
    history = History.open(tmp_path)
    assert history.facts == {"seed": 3}
    np.testing.assert_array_equal(history.steps.step, np.arange(15))
    np.testing.assert_array_equal(history.steps.loss, np.arange(15, dtype=np.float32) + 0.5)
    np.testing.assert_array_equal(history.steps.task + history.steps.penalty, history.steps.loss)
    assert history.steps.pushed.dtype == np.float32
    assert history.epochs.phase == ("dense", "shrink", "shrink")
    assert np.isnan(history.epochs.error).all()  # was not measured
    assert {key: told.tolist() for key, told in history.epochs.figures.items()} == {
        "lambda": [0, 0.01, 0.02],
        "R": [3] * 3,
    }
    (cut,) = history.cuts
    assert (cut.epoch, cut.facts, cut.widths["conv1"]) == (1, {"leak": 0.1}, 5)


@pytest.mark.unit
def test_saliences_keep_their_channel_when_others_are_cut(writer: HistoryWriter, tmp_path: Path) -> None:
    trace = History.open(tmp_path).groups["conv1"]
    assert trace.salience.dtype == np.float16
    assert np.isnan(trace.salience[0]).all()  # no gates yet
    np.testing.assert_allclose(trace.salience[:, 5], [np.nan, 0.5, 0.1], atol=1e-3)
    assert trace.salience[2, 1] == 0  # gone
    assert trace.selected[:, 1].tolist() == [False, True, True]
    assert trace.width.tolist() == [-1, 6, 5]
    assert trace.alive.tolist() == [-1, 5, 5]


@pytest.mark.unit
def test_widths_stay_when_gates_are_folded(writer: HistoryWriter, tmp_path: Path) -> None:
    writer.cut(2, {}, {"conv1": 2, "layer1": 3})
    write_epoch(writer, 3, phase="settle")
    groups = History.open(tmp_path).groups
    assert groups["conv1"].width.tolist() == [-1, 6, 5, 2]
    assert groups["layer1"].width.tolist() == [-1, 4, 4, 3]
    assert np.isnan(groups["conv1"].salience[3]).all()


@pytest.mark.unit
def test_a_file_cut_short_anywhere_opens(writer: HistoryWriter, tmp_path: Path) -> None:
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / "short").mkdir()
    seen = []
    for length in range(len(b"pcshrink history 1\n"), len(data) + 1, 7):
        (tmp_path / "short" / FILE).write_bytes(data[:length])
        history = History.open(tmp_path / "short")
        seen.append((len(history.steps.loss), len(history.epochs.epoch)))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) in [((0, 0), (15, 3)), ((0, 0), (15, 2))]
    assert set(seen) <= {(0, 0), (5, 0), (5, 1), (10, 1), (10, 2), (15, 2), (15, 3)}


@pytest.mark.unit
def test_a_flipped_byte_ends_the_record_there(writer: HistoryWriter, tmp_path: Path) -> None:
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-3] ^= 0x55
    (tmp_path / FILE).write_bytes(data)
    assert len(History.open(tmp_path).epochs.epoch) == 2


@pytest.mark.unit
@pytest.mark.parametrize("content", [None, b"", b"something else entirely"])
def test_what_is_no_history_is_refused(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match=FILE):
        History.open(tmp_path)


@pytest.mark.unit
@pytest.mark.parametrize("torn", [0, 9])
def test_going_back_drops_what_came_after(torn: int, writer: HistoryWriter, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() + b"x" * torn)  # a crash in the middle of a block
    later = HistoryWriter(tmp_path)
    later.rewind(7, 1)
    history = History.open(tmp_path)
    assert history.steps.step.tolist() == list(range(7))
    assert history.epochs.epoch.tolist() == [0]
    assert history.cuts == ()
    write_steps(later, 7, 3)
    write_epoch(later, 1, [state("conv1", range(6), [1, 1, 1, 1, 1, 0])])
    history = History.open(tmp_path)
    assert history.steps.loss.tolist() == [s + 0.5 for s in range(10)]
    assert history.groups["conv1"].salience[1, 5] == 0


@pytest.mark.unit
def test_steps_are_safe_after_a_flush(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path)
    writer.start({})
    write_steps(writer, 0, 3)
    assert len(History.open(tmp_path).steps.loss) == 0
    writer.flush()
    assert len(History.open(tmp_path).steps.loss) == 3
    writer.flush()
    write_steps(writer, 3, 2)
    writer.flush()
    assert History.open(tmp_path).steps.step.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.unit
def test_a_full_disk_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "folder").write_text("in the way")
    writer = HistoryWriter(tmp_path / "folder")
    writer.start({})
    write_steps(writer, 0, 3)
    write_epoch(writer, 0)
    assert len(caplog.records) == 1
    assert "the run goes on" in caplog.text


@pytest.mark.unit
def test_two_hundred_epochs_of_resnet20_are_small(tmp_path: Path) -> None:
    sizes = [16] * 7 + [32] * 6 + [64] * 7
    names = [f"layer{1 + i // 7}.{i % 7}.conv1" for i in range(len(sizes))]
    writer = HistoryWriter(tmp_path)
    writer.start({"recipe": {"description": "x" * 2000}})
    writer.network({"groups": [{"name": n, "channels": c} for n, c in zip(names, sizes, strict=True)]})
    for epoch in range(200):
        write_steps(writer, 390 * epoch, 390)
        write_epoch(
            writer, epoch, [state(n, range(c), np.linspace(0, 1, c)) for n, c in zip(names, sizes, strict=True)]
        )
    assert (tmp_path / FILE).stat().st_size < 5_000_000
    assert len(History.open(tmp_path).steps.loss) == 78_000


class Signal(Logger):
    """Asks the run to stop once an epoch is over."""

    def __init__(self, epoch: int) -> None:
        self.at = epoch

    def epoch(self, row: Mapping[str, Any], groups: Sequence[GroupState]) -> None:
        if row["epoch"] == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.train
def test_an_interrupted_run_has_the_same_record(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recipe = tiny(epochs={"dense": 1, "shrink": 2, "settle": 2})
    train(recipe, tmp_path / "whole", quiet=True)
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "stopped", quiet=True, loggers=[Signal(2)])
    with (tmp_path / "stopped" / FILE).open("ab") as file:
        file.write(b"torn")
    train(recipe, tmp_path / "stopped", resume=True, quiet=True)
    torch.set_num_threads(threads)
    whole, stopped = History.open(tmp_path / "whole"), History.open(tmp_path / "stopped")
    same(whole.steps, stopped.steps)
    assert whole.cuts == stopped.cuts
    assert whole.network == stopped.network
    for name, trace in whole.groups.items():
        same(trace, stopped.groups[name])
    check_record(whole, tmp_path / "whole")


def check_record(history: History, folder: Path) -> None:
    """The record agrees with the files that the run writes anyhow."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    assert history.epochs.error.tolist() == [row["error"] for row in rows]
    assert len(history.steps.loss) == rows[-1]["step"]
    last = history.steps.loss[history.steps.step >= rows[-2]["step"]]
    assert float(last.mean()) == pytest.approx(rows[-1]["loss"], rel=1e-5)
    assert {name: int(trace.width[-1]) for name, trace in history.groups.items()} == result["widths"]
    for trace in history.groups.values():
        assert int((trace.salience[3] > 0).sum()) <= trace.width[-1]  # the epoch after the last cut
    assert history.cuts[-1].facts["masked_error"] == result["cut"]["masked_error"]
    pushing = history.epochs.epoch[[p == "shrink" for p in history.epochs.phase]]
    steps = np.isin(history.steps.step // 11, pushing)
    assert history.steps.pushed[steps][0] > 0
    assert (history.steps.penalty[~steps] == 0).all()
    assert {len(row["writers"]) > 0 for row in history.network["groups"]} == {True}
    assert "fc" in history.network["stays"]
    assert len(result["compact"]["error_by_class"]) == 10
    assert result["compact"]["images"] == history.facts["images"]["eval"]
