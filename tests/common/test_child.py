"""Children of a command import nothing from the folder in which it was started."""

from __future__ import annotations

import subprocess
import sys
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
