"""Two processes give what one gives, agree on every cut, and are started again by torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from pcshrink.artifact import read
from pcshrink.cli.main import main
from pcshrink.common.stop import SIGNALS
from pcshrink.train.elastic import free_port
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.run import train
from testing.training import TINY

pytestmark = [pytest.mark.train, pytest.mark.slow]
Call = Callable[..., tuple[Any, str]]


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """`pcshrink train --devices 2` with a recipe: the exit code and what was said. The two are real processes."""
    handlers = {each: signal.getsignal(each) for each in SIGNALS}

    def call(recipe: Path, out: Path, *more: str) -> tuple[Any, str]:
        words = ["train", str(recipe), "--out", str(out), "--devices", "2", "--quiet", *more]
        monkeypatch.setattr(sys, "argv", ["pcshrink", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capfd.readouterr().err

    yield call
    for each, handler in handlers.items():
        signal.signal(each, handler)


def _children(process: int) -> list[int]:
    """Of all threads of a process."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())


def _killed_once(recipe: Path, out: Path) -> str:
    """Two processes of torchrun that go on, one of them killed after a new checkpoint; what the started ones said."""
    run = ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2", "--max-restarts", "1"]
    words = ["--master-port", str(free_port()), "-m", "pcshrink", "train", str(recipe), "--out", str(out), "--resume"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    before = {path.name for path in out.glob("checkpoints/*.safetensors")}
    launcher = subprocess.Popen([sys.executable, *run, *words], env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while launcher.poll() is None and time.monotonic() < deadline:
        if {path.name for path in out.glob("checkpoints/*.safetensors")} - before:
            break
        time.sleep(0.01)
    os.kill(_children(launcher.pid)[-1], signal.SIGKILL)
    _, log = launcher.communicate(timeout=200)
    assert launcher.returncode == 0, log
    return log


def _stopped(recipe: Path, out: Path) -> None:
    """Two processes that SIGTERM reaches after their first epoch."""
    command = [sys.executable, "-m", "pcshrink", "train", str(recipe), "--out", str(out), "--devices", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").is_file() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, log
    assert "a checkpoint is written. Go on with: pcshrink train" in log
    assert "Traceback" not in log


@pytest.mark.timeout(600)
def test_two_processes_give_what_one_gives_even_if_they_are_stopped_and_one_is_killed(tmp_path: Path) -> None:
    """In float64: a float32 run of this net multiplies a rounding error by 100,000 within an epoch."""
    recipe = tmp_path / "tiny.yaml"
    content = {k: dict(v) for k, v in TINY.items()}
    content["epochs"] = {"dense": 1, "warmup": 1, "shrink": 1}
    content["optimizer"] = {"lr": 0.02}
    content["train"] = {"precision": "fp64", "threads": 1}
    content["shrink"] = {"budget": {"madds": 0.5}, "lam": 0.02, "compact_every": 1}
    recipe.write_text(yaml.safe_dump(content))
    train(check_recipe(content), tmp_path / "one", quiet=True)
    _stopped(recipe, tmp_path / "two")
    log = _killed_once(recipe, tmp_path / "two")
    assert log.count("going on at epoch") == 2, log  # after the signal, and after the kill
    assert "had chosen other channels" not in log
    one, two = (read(tmp_path / name / "model") for name in ("one", "two"))
    assert one.plan is not None
    assert one.plan == two.plan
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("one", "two"))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        spread = float((tensor.double() - second[name].double()).abs().max())
        assert spread <= 1e-6 * max(float(tensor.double().abs().max()), 1.0), (name, spread)


def test_a_mistake_is_said_once(two_processes: Call, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(TINY | {"data": {"name": "digits", "batch_size": 33}}))
    code, log = two_processes(recipe, tmp_path / "out")
    assert code == 2
    assert log.count("\n") == 1, log
    assert "batch_size 33 cannot be shared evenly by 2 processes" in log


def test_a_killed_process_ends_the_others_in_one_line_each(tmp_path: Path) -> None:
    recipe, out = tmp_path / "tiny.yaml", tmp_path / "out"
    recipe.write_text(yaml.safe_dump(TINY | {"epochs": {"dense": 1000, "shrink": 1, "settle": 1}}))
    command = [sys.executable, "-m", "pcshrink", "train", str(recipe), "--out", str(out), "--devices", "2", "--quiet"]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)
    while not (out / "metrics.jsonl").is_file() and process.poll() is None:
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    _, log = process.communicate()
    assert process.returncode == 128 + signal.SIGKILL, log
    first, second = log.splitlines()
    assert "another process of this run is gone" in first
    assert "Go on with: pcshrink train" in first
    assert second == "pcshrink: process 1 of 2 was ended by SIGKILL"
