"""The commands that export and time saved models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

import pcshrink as pcs
from pcshrink.cli.deploy import register
from pcshrink.errors import ShrinkError
from pcshrink.models import create
from testing.hurry import short_timings

pytestmark = pytest.mark.export

app = typer.Typer()
register(app)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    model, example = create("pcshrink:digitsnet"), torch.randn(2, 1, 8, 8)
    shrinker = pcs.attach_(model, example)
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    for name, gates in (("folded", "fold"), ("gated", "keep")):
        small = pcs.compact(model, plan, example, gates=gates)  # type: ignore[arg-type]
        pcs.save(folder / name, small, plan, "pcshrink:digitsnet", input_shape=(1, 8, 8))
    pcs.save(folder / "bare", pcs.compact(model, plan, example, gates="fold"), plan)
    return folder


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if code == 0 and result.exception is not None:
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_export(saved: Path) -> None:
    assert "agrees on 256 inputs" in run("export", saved / "folded", "--batch", "dynamic")
    assert (saved / "folded" / "model.onnx").is_file()
    pcs.load(saved / "folded")  # what lies beside the artifact does not disturb it


def test_bench(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_timings(monkeypatch.setattr)
    words = ("bench", saved / "folded", saved / "gated", "--dense", "--seconds", 0.05, "--batch", "1,2")
    text = run(*words, "--why")
    assert all(word in text for word in ("dense", "folded", "gated", "batch 1", "batch 2", "lost ms"))
    found = json.loads(run(*words, "--json", "--runtime", "eager"))
    assert [set(rows) for rows in found] == [{"dense", "folded", "gated"}] * 2
    assert found[0]["dense"]["ratio"]["value"] == 1.0


def test_networks_for_different_inputs_are_not_timed_at_the_size_of_the_first(saved: Path, tmp_path: Path) -> None:
    pcs.save(tmp_path / "larger", create("pcshrink:digitsnet"), None, "pcshrink:digitsnet", input_shape=(1, 12, 12))
    words = ("bench", saved / "folded", tmp_path / "larger", "--seconds", 0.02, "--runtime", "eager")
    with pytest.raises(ShrinkError, match=r"folded 1 x 8 x 8, .*larger 1 x 12 x 12\); pass --input"):
        run(*words)
    assert "larger" in run(*words, "--input", "1,8,8")


def test_the_network_can_be_named(saved: Path) -> None:
    text = run("bench", saved / "bare", "--model", "digitsnet", "--input", "1,8,8", "--seconds", 0.02)
    assert "bare" in text


def test_a_runtime_of_your_own(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_runtime.py").write_text(
        "def prepare(model, example, threads):\n    return lambda: model(example)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ("bench", saved / "folded", saved / "gated", "--runtime", "bench_runtime:prepare", "--seconds", 0.02)
    with pytest.raises(ShrinkError, match=r"is code of your own.*--trust"):
        run(*words)
    text = run(*words, "--trust", "--why")
    assert "bench_runtime:prepare, batch 1" in text
    assert "lost ms" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "folded", "--format", "tflite"), "unknown export format"),
        (("export", "folded", "--batch", "many"), "--batch"),
        (("bench", "folded", "--runtime", "openvin"), "unknown runtime 'openvin', did you mean 'openvino'"),
        (("bench", "folded", "--why", "--seconds", "0.02"), "two models"),
        (("bench", "bare", "--dense"), "--model"),
        (("bench", "nothing"), "missing"),
    ],
)
def test_mistakes(saved: Path, words: tuple[str, ...], message: str) -> None:
    command, folder, *rest = words
    with pytest.raises(ShrinkError, match=message):
        run(command, saved / folder, *rest)
