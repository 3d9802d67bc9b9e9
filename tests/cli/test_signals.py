"""`pcshrink train` and signals before the training begins and after it is over; in between see the trainer's tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pcshrink.common.child import own_command
from testing.training import TINY

pytestmark = pytest.mark.train

# The command line, with a signal from itself when the training is over and nothing is saved yet.
STOPS_WHILE_FINISHING = """
import os, signal
from pcshrink import __main__
from pcshrink.train import run

finish = run.finish
def stopped(*arguments):
    os.killpg(0, signal.SIGTERM)
    return finish(*arguments)
run.finish = stopped
__main__.main()
"""


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    recipe = folder / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(TINY | {"epochs": {"dense": 1, "shrink": 1, "settle": 1}}))
    command = [*words, "train", str(recipe), "--out", str(folder / "out"), "--quiet"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_ctrl_c_while_data_and_gates_are_set_up(tmp_path: Path) -> None:
    process = start(own_command(), tmp_path)
    while not (tmp_path / "out").exists() and process.poll() is None:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.startswith("stopped before the first checkpoint; nothing is lost. Begin again with: pcshrink train")
    assert said.count("\n") == 1
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_sigterm_while_finishing(tmp_path: Path) -> None:
    process = start([sys.executable, "-c", STOPS_WHILE_FINISHING], tmp_path)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 143, said
    assert said.startswith("stopped; the checkpoint of step 33 is whole. Go on with: pcshrink train")
    assert said.rstrip().endswith("--resume")
    assert said.count("\n") == 1
