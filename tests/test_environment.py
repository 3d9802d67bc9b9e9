"""The shared environment is rebuilt when its packages would change, and only then."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = "numpy==2.0.0\ntorch==2.10.0\n"


@pytest.fixture(scope="module")
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / "tools" / "environment.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pyproject(environment: ModuleType) -> dict[str, Any]:
    return dict(environment.read_pyproject(ROOT / "pyproject.toml"))


def test_extras_are_written_out(environment: ModuleType, pyproject: dict[str, Any]) -> None:
    wanted = environment.requirements(pyproject)
    assert {"torch>=2.10", "timm", "onnx", "openvino", "matplotlib", "pytest"} <= set(wanted)
    assert not [requirement for requirement in wanted if requirement.startswith("pcshrink")]


def test_key_ignores_settings_and_comments(environment: ModuleType, pyproject: dict[str, Any]) -> None:
    other = copy.deepcopy(pyproject)
    other["tool"]["ruff"]["line-length"] = 79
    other["project"]["version"] = "9.9.9"
    key = environment.dependency_key(pyproject, CONSTRAINTS)
    assert environment.dependency_key(other, "# a comment\n\n" + CONSTRAINTS) == key


def test_key_follows_packages(environment: ModuleType, pyproject: dict[str, Any]) -> None:
    other = copy.deepcopy(pyproject)
    other["project"]["optional-dependencies"]["export"].append("one-more")
    key = environment.dependency_key(pyproject, CONSTRAINTS)
    assert environment.dependency_key(other, CONSTRAINTS) != key
    assert environment.dependency_key(pyproject, CONSTRAINTS.replace("2.0.0", "2.0.1")) != key


def test_stamp_follows_packaging_only(environment: ModuleType, pyproject: dict[str, Any]) -> None:
    other = copy.deepcopy(pyproject)
    other["tool"]["ruff"]["line-length"] = 79
    shared = Path("shared")
    assert environment.clone_stamp(other, shared) == environment.clone_stamp(pyproject, shared)
    other["project"]["version"] = "9.9.9"
    assert environment.clone_stamp(other, shared) != environment.clone_stamp(pyproject, shared)


def test_foreign_venv_is_left_alone(environment: ModuleType, tmp_path: Path) -> None:
    light = tmp_path / ".venv"
    light.mkdir()
    (light / "mine").touch()
    with pytest.raises(environment.SetupError, match="move it away"):
        environment.build_light(light, tmp_path / "shared", "stamp")
    assert (light / "mine").exists()


def test_failed_command_is_explained(
    environment: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "import sys; print('the reason'); sys.exit(3)"]
    with pytest.raises(environment.SetupError, match=r"this failed \(exit code 3\).*Do that\."):
        environment.run(command, tmp_path / "log", "this", "Do that.")
    assert "the reason" in capsys.readouterr().err


def test_version_is_known_everywhere(pyproject: dict[str, Any], tmp_path: Path) -> None:
    assert importlib.metadata.version("pcshrink") == pyproject["project"]["version"]
    code = "import pcshrink; print(pcshrink.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "pcshrink", done.stderr
