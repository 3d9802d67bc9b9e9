"""An export format of the user's own works wherever a built-in one does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

import pcshrink as pcs
from pcshrink.cli.deploy import register
from pcshrink.common.files import staged
from pcshrink.errors import ConfigError, ShrinkError
from pcshrink.export import EXPORT_FORMATS, ExportFormat, ExportReport
from pcshrink.export.agree import agree, prepare
from pcshrink.export.onnx import read_preprocessing
from pcshrink.models import create
from pcshrink.train.recipe.schema import Recipe
from pcshrink.train.run import train
from testing.training import tiny

pytestmark = pytest.mark.export

app = typer.Typer()
register(app)

MODULE = """
from pathlib import Path

def shapes(model, example_input, path, *, batch):
    Path(path).write_text("\\n".join(f"{name} {tuple(p.shape)}" for name, p in model.named_parameters()))
    return f"{path}: shapes for a batch of {batch}"
"""


def write_toy(model: nn.Module, example_input: Any, path: str | Path, *, batch: Any) -> ExportReport:
    """The parameters as torch saves them, compared as every export is."""
    ready, example, norm_error = prepare(model, example_input, batch)
    with staged(path) as temporary:
        torch.save(ready.state_dict(), temporary)
        ready.load_state_dict(torch.load(temporary, weights_only=True))
        inputs, worst, share = agree(model, lambda tensors: [ready(*tensors).detach()], example, batch)
        size = temporary.stat().st_size
    return ExportReport(
        path=Path(path), format="toy", exporter="torch.save", inputs=inputs, difference=worst,
        top1_equal=share, norm_error=norm_error, bytes=size,
    )  # fmt: skip


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    pcs.save(tmp_path / "net", create("pcshrink:digitsnet"), None, "pcshrink:digitsnet", input_shape=(1, 8, 8))
    return tmp_path / "net"


@pytest.fixture
def registered() -> Iterator[str]:
    EXPORT_FORMATS.register("toy", ExportFormat(name="toy", write=write_toy, suffix=".pt", description="for a test"))
    yield "toy"
    EXPORT_FORMATS.unregister("toy")


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_registered_format_on_the_command_line(saved: Path, registered: str) -> None:
    text = run("export", saved, "--format", registered, "--batch", "dynamic")
    assert "agrees on 256 inputs" in text
    assert (saved / "model.pt").is_file()
    with pytest.raises(ConfigError, match=r"unknown export format 'toys', did you mean 'toy'\?"):
        run("export", saved, "--format", "toys")


def test_code_by_name(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_format.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    words = ("export", saved, "--format", "own_format:shapes", "--batch", "2")
    with pytest.raises(ShrinkError, match=r"the export format 'own_format:shapes' is code of your own.*--trust"):
        run(*words)
    assert "shapes for a batch of 2" in run(*words, "--trust")
    assert "fc.weight (10, " in (saved / "model.shapes").read_text()


def plain_run(**output: Any) -> Recipe:
    return tiny(epochs={"dense": 1}, shrink=None, distill=None, output={"latency": False, **output})


def test_formats_in_a_recipe(tmp_path: Path, registered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe_format.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    recipe = plain_run(onnx=True, export=["pt2", registered, "recipe_format:shapes"])
    with pytest.raises(ConfigError, match=r"'recipe_format:shapes' is code of your own.*--trust"):
        train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    result = train(recipe, tmp_path / "run", quiet=True, trust=True)
    suffixes = {"onnx": "onnx", "pt2": "pt2", registered: "pt", "recipe_format:shapes": "shapes"}
    for name, suffix in suffixes.items():
        assert result.files[name] == str(tmp_path / "run" / f"model.{suffix}")
        assert Path(result.files[name]).is_file()
    assert read_preprocessing(result.files["onnx"]) is not None
    assert json.loads((tmp_path / "run" / "result.json").read_text())["files"] == result.files


@pytest.mark.parametrize(
    ("output", "formats"),
    [({}, []), ({"onnx": True}, ["onnx"]), ({"onnx": True, "export": ["pt2", "onnx"]}, ["onnx", "pt2"])],
)
def test_onnx_is_one_of_the_formats_of_a_recipe(output: dict[str, Any], formats: list[str]) -> None:
    assert plain_run(**output).output.formats == formats


def test_what_cannot_be_written_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"output.export.0: unknown export format 'onyx', did you mean 'onnx'\?"):
        plain_run(export=["onyx"])
    twin = ExportFormat(name="twin", write=write_toy, suffix=".pt2")
    monkeypatch.setitem(EXPORT_FORMATS._registered, "twin", twin)
    with pytest.raises(ConfigError, match=r"pt2 and twin would both write model\.pt2"):
        train(plain_run(export=["pt2", "twin"]), tmp_path / "run", quiet=True)
    for library, name in (("onnxscript", "onnx"), ("openvino", "openvino")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ConfigError, match=f"needs {library}, which is not installed"):
            train(plain_run(export=[name]), tmp_path / "run", quiet=True)
        monkeypatch.undo()
    assert not (tmp_path / "run").exists()


def test_no_format() -> None:
    with pytest.raises(ConfigError, match="must be of the class ExportFormat or a function"):
        EXPORT_FORMATS.register("three", 3)  # type: ignore[arg-type]


def test_every_built_in_format_says_what_it_is() -> None:
    formats = {name: EXPORT_FORMATS.get(name) for name in EXPORT_FORMATS}
    assert {name: known.suffix for name, known in formats.items()} == {
        "onnx": ".onnx",
        "pt2": ".pt2",
        "openvino": ".xml",
    }
    assert all(known.name == name and known.description for name, known in formats.items())
