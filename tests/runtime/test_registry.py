"""A runtime of the user's own works wherever a built-in one does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.errors import ConfigError, VerificationError
from pcshrink.measure.latency import compare
from pcshrink.measure.layers import Layer, LayerTable
from pcshrink.runtime.registry import RUNTIMES, Runtime
from pcshrink.runtime.run import check_runtime, ready
from pcshrink.train.recipe.read import check_recipe
from testing.training import TINY

pytestmark = pytest.mark.unit

EXAMPLE = torch.ones(2, 4)


def prepare_adding(model: nn.Module, example_input: Any, threads: int) -> Any:
    """A runtime that adds the number of threads to the outputs, so that its own outputs can be told."""
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    return lambda: model(example_input) + threads


@pytest.fixture
def registered() -> Iterator[str]:
    RUNTIMES.register("adding", prepare_adding)
    yield "adding"
    RUNTIMES.unregister("adding")


def test_a_registered_runtime_is_timed(registered: str) -> None:
    model = nn.Linear(4, 4)
    assert pcs.latency(model, EXAMPLE, registered, threads=1, seconds=0.01).runtime == "adding"
    timed = compare({"a": model, "b": nn.Linear(4, 2)}, EXAMPLE, registered, threads=1, seconds=0.01)
    assert set(timed.results) == {"a", "b"}
    table = LayerTable(registered, threads=1, seconds=0.001)
    assert table.total({"layer": [Layer("Linear", (2, 4), 4, 4)]}) > 0
    assert torch.equal(ready(model, EXAMPLE, registered, 3)(), model(EXAMPLE) + 3)
    assert model.training
    with pytest.raises(ConfigError, match=r"unknown runtime 'addin', did you mean 'adding'\?"):
        pcs.latency(model, EXAMPLE, "addin")


def test_the_runtime_itself() -> None:
    own = Runtime(name="mine", prepare=prepare_adding, by_layer=False)
    assert pcs.latency(nn.Linear(4, 4), EXAMPLE, own, seconds=0.01).runtime == "mine"
    assert pcs.latency(nn.Linear(4, 4), EXAMPLE, prepare_adding, seconds=0.01).runtime == "prepare_adding"
    with pytest.raises(ConfigError, match='single layers are not timed with runtime="mine"'):
        LayerTable(own)


def test_a_runtime_that_is_not_installed() -> None:
    def demand() -> None:
        raise ConfigError("this needs tvm, which is not installed: pip install apache-tvm")

    absent = Runtime(name="tvm", prepare=prepare_adding, check=demand)
    with pytest.raises(ConfigError, match="pip install apache-tvm"):
        pcs.latency(nn.Linear(4, 4), EXAMPLE, absent)


@pytest.mark.parametrize(("runtime", "library"), [("onnxruntime", "onnxruntime"), ("openvino", "openvino")])
def test_a_library_that_is_missing(runtime: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    extra = "openvino" if library == "openvino" else "export"
    with pytest.raises(ConfigError, match=rf"needs {library}, which is not installed; install it with .*\[{extra}\]"):
        check_runtime(runtime)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs a C\\+\\+ compiler"):
        check_runtime("compiled")


def test_code_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_runtime.py").write_text(
        "def prepare(model, example, threads):\n    return lambda: model(example)\n"
    )
    monkeypatch.chdir(tmp_path)
    name = "own_runtime:prepare"
    budget = {"shrink": {"budget": {"latency": 0.5, "runtime": name}, "gates": "fold"}}
    assert check_recipe({**TINY, **budget}).shrink.budget.runtime == name  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"the runtime 'own_runtime:prepare' is code of your own.*--trust"):
        pcs.latency(nn.Linear(4, 4), EXAMPLE, name)
    assert pcs.latency(nn.Linear(4, 4), EXAMPLE, check_runtime(name, trust=True), seconds=0.01).runtime == name


def test_a_recipe_with_an_unknown_runtime() -> None:
    budget = {"shrink": {"budget": {"latency": 0.5, "runtime": "onnx"}, "gates": "fold"}}
    with pytest.raises(ConfigError, match=r"shrink\.budget: unknown runtime 'onnx', did you mean 'onnxruntime'"):
        check_recipe({**TINY, **budget})


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_each_runtime_computes_what_the_model_does(runtime: str) -> None:
    model, inputs = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), torch.randn(2, 3, 8, 8)
    expected = model.eval()(inputs)
    results = ready(model, inputs, runtime, 1)()
    output = results[0]  # of a list in onnxruntime, of a mapping from ports in OpenVINO
    assert torch.allclose(torch.as_tensor(output), expected, atol=1e-5)


def test_a_model_that_no_exporter_takes() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvals(x.T @ x).real

    with pytest.raises(VerificationError, match=r"no exporter gave an ONNX file.*legacy: .*dynamo: "):
        ready(Odd(), torch.randn(4, 4), "onnxruntime", 1)
