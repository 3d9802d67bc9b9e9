"""The examination tells the truth about this machine, and what to do where something is wrong."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from pcshrink.cli.main import main
from pcshrink.doctor import check, kernels
from pcshrink.doctor.machine import TELLING, announced, free_space, usable_cores
from pcshrink.doctor.packages import extras, needed


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pcshrink", "doctor", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_this_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["kernels"]["float32"]["works"]
    assert set(found["runtimes"]) == {"eager", "compiled", "onnxruntime", "openvino"}
    assert found["machine"]["cores"] >= 1
    text = check.as_text(found)
    assert f"pcshrink     {metadata.version('pcshrink')}" in text
    assert text.endswith("All is well.")


def test_only_needed_packages_are_needed() -> None:
    assert set(needed()) == {"torch", "numpy", "safetensors", "typer", "rich", "pydantic", "pyyaml"}


def test_a_missing_package_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcshrink.doctor.packages.find_spec", lambda name: None if name == "onnxruntime" else object())
    assert re.fullmatch(r"pip install [^`]*\[export\][^`]*", extras()["export"]["get_it"])
    assert extras()["report"]["get_it"] == ""


@pytest.mark.skipif(sys.platform != "linux", reason="signals and affinities as on Linux")
def test_work_that_ends_python_is_survived() -> None:
    dying = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    assert kernels._child(dying)[0] == kernels.Trial(works=False, trouble="ended by SIGILL")
    assert kernels._child("raise ValueError('no such kernel')")[0].trouble == "ValueError: no such kernel"
    assert usable_cores() >= 1


def test_the_remedy_is_tried_before_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    amx = "import os, signal\nif 'ONEDNN_MAX_CPU_ISA' not in os.environ: os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(kernels, "PRODUCT", amx)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    trial = kernels.try_kernel("bfloat16")
    assert (trial.works, trial.remedy) == (False, "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16")
    monkeypatch.setattr(kernels, "PRODUCT", "raise SystemExit(3)")
    assert kernels.try_kernel("bfloat16").remedy == ""


def examined(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "packages": {"torch": "2.15.0"}, "torch": {"torch": "2.15.0+cpu"}, "kernels": {}, "extras": {},
        "machine": {"disk_free_gib": {"current folder": 50.0}},
    }  # fmt: skip
    return base | changes


@pytest.mark.parametrize(
    ("changes", "trouble", "said"),
    [
        ({"packages": {"torch": None}}, "", "torch is missing; pip install torch"),
        ({"torch": {"torch": "2.4.1"}}, "", "torch 2.4.1 is too old"),
        ({}, "ImportError: libgomp", "torch cannot be used: ImportError: libgomp"),
        (
            {"kernels": {"float32": {"works": False, "trouble": "ended by SIGILL", "remedy": ""}}},
            "",
            "float32 does not work here: ended by SIGILL",
        ),
    ],
)
def test_problems(changes: dict[str, Any], trouble: str, said: str) -> None:
    found = check.problems(examined(**changes), trouble)
    assert len(found) == 1
    assert said in found[0]
    assert check.problems(examined(), "") == []


def test_advice_is_not_a_problem() -> None:
    low = {"disk_free_gib": {"current folder": 0.5}}
    broken = {"works": False, "trouble": "ended by SIGILL", "remedy": "set X=1"}
    found = examined(machine=low, kernels={"bfloat16": broken}, extras={"export": {"get_it": "pip install it"}})
    assert check.problems(found, "") == []
    said = check.advice(found)
    assert ["set X=1" in said[0], "0.5 GiB" in said[1], "pip install it" in said[2]] == [True] * 3


def test_a_problem_ends_with_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(check, "torch_facts", lambda: ({}, "it is broken"))
    assert run(monkeypatch) == 1
    assert "torch cannot be used: it is broken" in capsys.readouterr().out


def test_facts_come_from_the_system() -> None:
    assert set(announced()) <= set(TELLING)
    assert free_space(Path("/nowhere/at/all")) is None
