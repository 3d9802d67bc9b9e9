"""Children of a command import nothing from the folder in which it was started."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import pcshrink
from pcshrink.common.child import own_command, python_command

pytestmark = pytest.mark.unit


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder whose modules would take the place of others."""
    for name in ("json", "typer", "pcshrink"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of this folder ran')\n")
    return tmp_path


def run(words: list[str], folder: Path) -> str:
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("python", [sys.version_info, (3, 10)])
def test_the_command_itself(hostile_folder: Path, python: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", python)
    words = own_command()
    monkeypatch.undo()
    assert pcshrink.__version__ in run([*words, "--version"], hostile_folder)


def test_code(hostile_folder: Path) -> None:
    assert run(python_command("import json, pcshrink; print(json.dumps([1]))"), hostile_folder) == "[1]\n"


PARENT = """
import subprocess, sys
from pcshrink.common.child import end_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], preexec_fn=end_with_parent)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_a_killed_parent_takes_its_children_along() -> None:
    parent = subprocess.Popen(python_command(PARENT), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 30
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    """Whether it is there and not merely waiting to be collected by its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
