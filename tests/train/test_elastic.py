"""Processes that torchrun starts again: the run goes on by itself, and only its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pcshrink.train import elastic
from testing.training import TINY, model_bytes

RECIPE = TINY | {"epochs": {"dense": 1, "shrink": 1, "settle": 1}, "train": {"threads": 1}}


def _children(process: int) -> list[int]:
    """Of all threads of a process."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of torchrun in /proc")
def test_a_killed_process_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    recipe, out = tmp_path / "tiny.yaml", tmp_path / "out"
    recipe.write_text(yaml.safe_dump(RECIPE))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = ["-m", "pcshrink", "train", str(recipe)]
    two = [sys.executable, *words, "--out", str(tmp_path / "whole"), "--devices", "2", "--quiet"]
    subprocess.run(two, env=environment, check=True, capture_output=True)
    run = ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2", "--max-restarts", "1"]
    port = ["--master-port", str(elastic.free_port())]
    launcher = subprocess.Popen(
        [sys.executable, *run, *port, *words, "--out", str(out)], env=environment, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoints/*.safetensors")) and launcher.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(_children(launcher.pid)[-1], signal.SIGKILL)
    _, log = launcher.communicate(timeout=200)
    assert launcher.returncode == 0, log
    assert "going on at epoch" in log
    assert model_bytes(out) == model_bytes(tmp_path / "whole")


@pytest.mark.unit
def test_only_the_same_torchrun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not elastic.began_here(tmp_path)
    elastic.note_launcher(tmp_path)  # no torchrun: nothing to remember
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    elastic.note_launcher(tmp_path)
    assert not elastic.began_here(tmp_path)  # a second run of the same process
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert elastic.began_here(tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not elastic.began_here(tmp_path)  # another torchrun: an earlier run that it must not touch
    (tmp_path / ".launcher").write_text("half")
    assert not elastic.began_here(tmp_path)
