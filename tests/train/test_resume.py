"""A run may stop at any moment: what comes out in the end is the same, bit by bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from pcshrink.common.lock import sole_writer
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.train import checkpoint
from pcshrink.train.callbacks import Callback
from pcshrink.train.checkpoint import Checkpoints, load_state, save_state
from pcshrink.train.interrupt import Interrupted
from pcshrink.train.loop import DivergedError, Loop
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.run import train
from testing.training import TINY, CopyAt, model_bytes, tiny, train_with_stops

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]
SHORT = {"dense": 1, "shrink": 1, "settle": 1}
# 11 steps an epoch: dense, warm-up, three of shrinking with cuts, two of settling with a fold between them.
FOLDING = {"dense": 1, "warmup": 1, "shrink": 3, "settle": 2}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    train(tiny(epochs=FOLDING), folder, quiet=True, callbacks=[CopyAt(70, folder.with_name("killed"))])
    return folder


class StopInEvaluation(Callback):
    """Lets a signal arrive while the given epoch is evaluated."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def before_evaluation(self, loop: Loop) -> None:
        if loop.epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGINT)


class DieBeforeFirstStep(Callback):
    """As if the process was killed."""

    def before_step(self, loop: Loop) -> None:
        sys.exit(1)


class Spoil(Callback):
    """Makes the loss NaN whenever ``bad`` says so of the loop and the number of losses so far."""

    def __init__(self, bad: Callable[[Loop, int], bool]) -> None:
        self.bad, self.calls = bad, 0

    def on_loss(self, loop: Loop, loss: Tensor) -> Tensor:
        self.calls += 1
        return loss * float("nan") if self.bad(loop, self.calls) else loss


def test_sigterm_and_resume_give_the_same_weights(whole_run: Path, tmp_path: Path) -> None:
    train_with_stops(tiny(epochs=FOLDING), tmp_path, 22, 50, 70)
    assert model_bytes(tmp_path) == model_bytes(whole_run)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(7))


def test_a_signal_during_evaluation_is_heard(whole_run: Path, tmp_path: Path) -> None:
    seconds = {}
    for epoch in (2, 5):  # gates as they are, and halfway to constants
        with pytest.raises(Interrupted) as caught:
            train(tiny(epochs=FOLDING), tmp_path, resume=bool(seconds), quiet=True, callbacks=[StopInEvaluation(epoch)])
        assert caught.value.code == 130
        saved = Checkpoints(tmp_path / "checkpoints").load()
        assert saved is not None
        assert saved["place"] == {"epoch": epoch, "batch": 11, "step": 11 * epoch + 11}
        seconds[epoch] = saved["sums"]["seconds"]
    train(tiny(epochs=FOLDING), tmp_path, resume=True, quiet=True)
    assert model_bytes(tmp_path) == model_bytes(whole_run)
    rows, expected = ((f / "metrics.jsonl").read_text().splitlines() for f in (tmp_path, whole_run))
    for epoch, taken in seconds.items():
        row = json.loads(rows[epoch])
        assert row.pop("seconds") == taken > 0  # no step was left, yet the epoch took its time
        assert row.pop("images_per_second") > 0
        assert row.items() <= json.loads(expected[epoch]).items()


def test_a_signal_after_the_last_step_is_heard(whole_run: Path, tmp_path: Path) -> None:
    class StopAtTheEnd(Callback):
        def after_epoch(self, loop: Loop, row: Any) -> None:
            if loop.epoch + 1 == loop.timetable.total:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="epoch 7, step"):
        train(tiny(epochs=FOLDING), tmp_path, quiet=True, callbacks=[StopAtTheEnd()])
    train(tiny(epochs=FOLDING), tmp_path, quiet=True, resume=True)
    assert model_bytes(tmp_path) == model_bytes(whole_run)


def test_a_run_killed_before_its_first_step_keeps_the_dense_figures(whole_run: Path, tmp_path: Path) -> None:
    model = dict(TINY["model"]) | {"weights": str(whole_run / "dense.safetensors")}
    recipe = tiny(model=model, epochs={"shrink": 1, "settle": 1})
    expected = train(recipe, tmp_path / "whole", quiet=True)
    with pytest.raises(SystemExit):
        train(recipe, tmp_path / "killed", quiet=True, callbacks=[DieBeforeFirstStep()])
    result = train(recipe, tmp_path / "killed", resume=True, quiet=True)
    assert result.dense == expected.dense
    assert model_bytes(tmp_path / "killed") == model_bytes(tmp_path / "whole")


def newest_step(checkpoints: Path) -> int:
    return max((int(path.stem.split("-")[1]) for path in checkpoints.glob("checkpoint-*.safetensors")), default=-1)


@pytest.mark.slow
def test_kill_at_random_moments_and_resume(whole_run: Path, tmp_path: Path) -> None:
    """The first process is killed, the one that goes on as well, and the third ends as if nothing had happened."""
    path, out = tmp_path / "tiny.yaml", tmp_path / "out"
    content = TINY | {"epochs": FOLDING, "output": {"latency": False, "checkpoint_steps": 4}}
    path.write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "pcshrink", "train", str(path), "--out", str(out), "--quiet"]
    chance = random.Random(7)
    for again, least in (([], 0), (["--resume"], 30)):
        moment = least + chance.randrange(25)  # whatever is going on when this step is known to be saved
        process = subprocess.Popen([*command, *again], env=os.environ | {"OMP_NUM_THREADS": "1"})
        while process.poll() is None and newest_step(out / "checkpoints") < moment:
            time.sleep(0.002)
        process.kill()
        process.wait()
    train(check_recipe(content), out, resume=True, quiet=True)
    assert model_bytes(out) == model_bytes(whole_run)
    assert not list(out.rglob("*.tmp"))


def test_what_a_killed_run_left_half_written_is_removed(whole_run: Path, tmp_path: Path) -> None:
    shutil.copytree(whole_run.with_name("killed"), tmp_path, dirs_exist_ok=True)
    half_written = [
        tmp_path / ".recipe.yaml-abcdefgh.tmp" / "recipe.yaml",
        tmp_path / "checkpoints" / ".checkpoint-0000000008.safetensors-xby71c7o.tmp" / "checkpoint-8.safetensors",
        tmp_path / "exports" / "onnx" / ".model.xml-a_23456z.tmp" / "pcshrink-abcdefgh" / "model.onnx",
        tmp_path / "model" / f".model-{'0' * 32}.safetensors",
        tmp_path / "model" / ".pcshrink-new-4711-01234567",
    ]
    of_others = [
        tmp_path / ".notes-today.tmp" / "a",  # too short
        tmp_path / "checkpoints" / "best-abcdefgh.tmp" / "a",  # not hidden
        tmp_path / "checkpoints" / ".best-abcdefgh.tmp2" / "a",
        tmp_path / ".file-abcdefgh.tmp",  # not a folder
        tmp_path / "model" / ".model-mine.safetensors",
        tmp_path / "model" / ".pcshrink-new-ideas",
    ]
    for path in (*half_written, *of_others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    train(tiny(epochs=FOLDING), tmp_path, resume=True, quiet=True)
    assert model_bytes(tmp_path) == model_bytes(whole_run)
    assert not [path for path in half_written if path.exists()]
    assert {path.name for path in tmp_path.rglob("*.tmp")} == {
        ".notes-today.tmp", "best-abcdefgh.tmp", ".file-abcdefgh.tmp",
    }  # fmt: skip
    assert [path.read_text() for path in of_others] == ["half"] * len(of_others)


def test_a_folder_with_a_run_is_not_overwritten(whole_run: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a run already; go on with --resume"):
        train(tiny(epochs=FOLDING), whole_run, quiet=True)


def test_resuming_with_another_recipe_is_refused(whole_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"different: optimizer.*recipe\.yaml"):
        train(tiny(epochs=FOLDING, optimizer={"lr": 0.05}), whole_run, resume=True, quiet=True)


def test_the_checkpoint_knows_its_recipe_where_the_file_is_gone(whole_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole_run, tmp_path / "run")
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").unlink()
    with pytest.raises(ConfigError, match=r"different: optimizer.*resume it with its own"):
        train(tiny(epochs=FOLDING, optimizer={"lr": 0.05}), folder, resume=True, quiet=True)
    assert (folder / "recipe.yaml").read_text() == text


@pytest.mark.parametrize("missing", ["recipe", "trouble", "session"])
def test_a_whole_checkpoint_that_lacks_something_is_said(whole_run: Path, tmp_path: Path, missing: str) -> None:
    folder = shutil.copytree(whole_run, tmp_path / "run")
    newest = Checkpoints(folder / "checkpoints").written()[-1]
    save_state(newest, {key: value for key, value in load_state(newest).items() if key != missing})
    with pytest.raises(CheckpointError, match=rf"does not fit this run \(KeyError: '{missing}'\); remove it to go on"):
        train(tiny(epochs=FOLDING), folder, resume=True, quiet=True)


def test_a_folder_has_one_writer(whole_run: Path) -> None:
    with sole_writer(whole_run), pytest.raises(CheckpointError, match="another run is writing into"):
        train(tiny(epochs=FOLDING), whole_run, resume=True, quiet=True)


def test_checkpoints_keep_two_and_survive_damage(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 30):
        checkpoints.save(step, {"step": step, "w": torch.arange(3.0), "deep": [{"a": None, "b": [1.5, "x"]}]})
    assert [p.name[-22:] for p in checkpoints.written()] == [
        "0000000002.safetensors"[-22:],
        "0000000030.safetensors"[-22:],
    ]
    newest = checkpoints.written()[-1]
    newest.write_bytes(newest.read_bytes()[:40])
    state = checkpoints.load()
    assert state is not None
    assert state["step"] == 2
    assert state["deep"] == [{"a": None, "b": [1.5, "x"]}]
    assert state["w"].tolist() == [0, 1, 2]
    for path in checkpoints.written():
        path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoints.load()


def test_no_nan_reaches_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model/fc\.weight holds numbers that are not finite"):
        save_state(tmp_path / "a.safetensors", {"model": {"fc.weight": torch.tensor([1.0, float("nan")])}})
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.safetensors"
    save_state(path, {"step": 1})

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_state(path, {"step": 2})
    assert load_state(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_one_bad_step_is_skipped(tmp_path: Path) -> None:
    result = train(tiny(epochs=SHORT), tmp_path, quiet=True, callbacks=[Spoil(lambda loop, calls: calls == 18)])
    assert result.compact["error"] < 90
    state = Checkpoints(tmp_path / "checkpoints").load()
    assert state is not None
    assert state["place"]["step"] == 32  # one less than 3 epochs of 11
    assert state["trouble"]["rollbacks"] == 0


def test_several_bad_steps_roll_back(tmp_path: Path) -> None:
    train(tiny(epochs=SHORT), tmp_path, quiet=True, callbacks=[Spoil(lambda loop, calls: 18 <= calls < 22)])
    state = Checkpoints(tmp_path / "checkpoints").load()
    assert state is not None
    assert state["trouble"]["rollbacks"] == 1
    assert state["trouble"]["lr_scale"] == 0.5
    assert state["place"]["step"] == 33


def test_lasting_trouble_stops_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"not finite \(step 30, .*lower optimizer\.lr"):
        train(tiny(epochs=FOLDING), tmp_path, quiet=True, callbacks=[Spoil(lambda loop, calls: loop.step >= 30)])
    state = Checkpoints(tmp_path / "checkpoints").load()
    assert state is not None
    assert all(t.isfinite().all() for t in state["session"]["model"].values() if t.is_floating_point())
