"""Loggers beside ours: what they write is read back by their own libraries, and none of them can stop a run."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcshrink.train.history import GroupState
from pcshrink.train.loggers import Logger, Loggers, MLflow, TensorBoard, WeightsAndBiases
from pcshrink.train.run import train
from testing.training import tiny

FACTS = {"recipe": {"seed": 3, "model": {"name": "digitsnet"}}}
GROUP = GroupState(
    name="conv1", channels=np.arange(4), salience=np.array([0.1, 0.9, 0.8, 0.0]), selected=np.zeros(4, bool), alive=3
)


def row(epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "epochs": 3,
        "phase": "shrink",
        "loss": 1.5 - epoch,
        "error": 10.0 - epoch,
        "val_loss": None,
    }


def log_three_epochs(logger: Logger) -> None:
    """Two epochs, an interruption, and the second one again with a third."""
    logger.start(FACTS, 0)
    logger.epoch(row(0), [GROUP])
    logger.epoch(row(1), [GROUP])
    logger.close()
    logger.start(FACTS, 1)
    logger.epoch(row(1), [GROUP])
    logger.epoch(row(2), [])
    logger.close()


class Broken(Logger):
    """Fails at a certain call."""

    name = "Broken"

    def __init__(self, fails_at: str) -> None:
        self.fails_at, self.calls = fails_at, 0

    def _maybe(self, at: str) -> None:
        self.calls += 1
        if self.fails_at == at:
            raise OSError("no route to host")

    def start(self, facts: Mapping[str, Any], epoch: int) -> None:
        self._maybe("start")

    def epoch(self, row: Mapping[str, Any], groups: Sequence[GroupState]) -> None:
        self._maybe("epoch")

    def close(self) -> None:
        self._maybe("close")


@pytest.mark.unit
@pytest.mark.parametrize(("fails_at", "calls"), [("start", 1), ("epoch", 2), ("close", 4)])
def test_a_failing_logger_is_switched_off_with_one_warning(
    fails_at: str, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = Broken(fails_at), Broken("never")
    loggers = Loggers([broken, sound])
    loggers.start(FACTS, 0)
    loggers.epoch(row(0), [])
    loggers.epoch(row(1), [])
    loggers.close()
    assert (broken.calls, sound.calls) == (calls, 4)
    (warning,) = caplog.records
    assert warning.getMessage() == "Broken is switched off, the run goes on: OSError: no route to host"


@pytest.mark.train
def test_a_run_outlives_its_loggers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    output = {"latency": False, "tensorboard": True}
    recipe = tiny(epochs={"dense": 1}, shrink=None, distill=None, output=output)
    result = train(recipe, tmp_path, quiet=True, loggers=[Broken("epoch")])
    assert result.compact["error"] < 100
    told = [record.getMessage() for record in caplog.records if "switched off" in record.getMessage()]
    assert [words.partition(" is ")[0] for words in told] == ["TensorBoard", "Broken"]


@pytest.mark.unit
def test_tensorboard(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    log_three_epochs(TensorBoard(tmp_path))
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, round(e.value, 3)) for e in events.Scalars("error")] == [(0, 10.0), (1, 9.0), (2, 8.0)]
    assert [e.value for e in events.Scalars("width/conv1")] == [3.0, 3.0]
    assert events.Histograms("salience/conv1")[0].histogram_value.num == 4


def logged_items(data: bytes) -> Iterator[Any]:
    """What an offline file of Weights & Biases logs; it is laid out as a LevelDB log of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    block, place, whole = 1 << 15, 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:  # no record begins at the very end of a block
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole in itself, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield from record.history.item
            whole = b""


@pytest.mark.unit
@pytest.mark.filterwarnings("default")
def test_weights_and_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: pip install '.[loggers]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_three_epochs(WeightsAndBiases(tmp_path))
    wandb.teardown()  # its own process writes the files
    logged: dict[str, list[str]] = {}
    for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")):
        for item in logged_items(file.read_bytes()):
            logged.setdefault(item.key or "/".join(item.nested_key), []).append(item.value_json)
    assert [float(v) for v in logged["error"]] == [10.0, 9.0, 9.0, 8.0]
    assert [float(v) for v in logged["width/conv1"]] == [3.0, 3.0, 3.0]
    assert any(key.startswith("salience/conv1") for key in logged)


@pytest.mark.unit
@pytest.mark.filterwarnings("default")
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install '.[loggers]'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log_three_epochs(MLflow(tmp_path))
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    assert run.info.run_name == tmp_path.name
    assert sorted({(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "error")}) == [
        (0, 10.0), (1, 9.0), (2, 8.0)
    ]  # fmt: skip
    assert {m.value for m in client.get_metric_history(run.info.run_id, "width/conv1")} == {3.0}
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["recipe.json"]
