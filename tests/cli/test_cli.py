"""The command line: every verb, and every mistake as one line with exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from pcshrink import cli
from pcshrink.train.recipe.read import recipe_names
from pcshrink.train.run import train
from testing.training import TINY, tiny


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pcshrink", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("finished")
    train(tiny(epochs={"dense": 1, "shrink": 1, "settle": 1}), folder, quiet=True)
    return folder


def test_help_needs_nothing_heavy() -> None:
    heavy = {"lightning", "timm", "torchvision", "pydantic"}
    code = f"import sys; from pcshrink import cli; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_recipes_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "recipes") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in recipe_names())
    assert call(monkeypatch, "recipes", "digits") == 0
    assert yaml.safe_load(capsys.readouterr().out)["model"] == {"name": "digitsnet"}


def test_inspect_tells_groups_costs_and_reasons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "inspect", "resnet20", "--ratio", "0.5") == 0
    text = capsys.readouterr().out
    assert "12 groups can shrink" in text
    assert "40,813,184" in text
    assert "41,407,114" in text  # the paper's convention
    assert "fc  network output" in text
    assert call(monkeypatch, "inspect", "digitsnet", "--json", "--input", "1,8,8", "--ratio", "0.25") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["input"] == [1, 8, 8]
    assert [g["keep"] for g in found["groups"]] == [12, 12, 24, 24, 48, 48]
    assert found["costs"]["layers"]["folded"]["madds"] < found["costs"]["layers"]["dense"]["madds"]


@pytest.mark.train
def test_eval_repeats_the_error(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = json.loads((finished / "result.json").read_text())["compact"]["error"]
    assert call(monkeypatch, "eval", str(finished), "--data", "digits", "--json") == 0
    assert json.loads(capsys.readouterr().out)["error"] == expected
    assert call(monkeypatch, "eval", str(finished / "model")) == 0
    assert f"error {expected:.2f} % on 360 images of digits" in capsys.readouterr().out


@pytest.mark.train
def test_train_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(yaml.safe_dump(TINY | {"epochs": {"dense": 1, "shrink": 1, "settle": 1}}))
    words = ["train", str(recipe), "--set", "shrink.gates=keep", "--out", str(tmp_path / "out")]
    assert call(monkeypatch, *words) == 0
    shown = capsys.readouterr()
    assert "madds" in shown.out
    assert "budget: madds" in shown.out
    assert "epoch 3/3 settle" in shown.err
    assert call(monkeypatch, *words) == 2
    assert "holds a run already; go on with --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "resnet2"], "no model is called 'resnet2'; did you mean"),
        (["inspect", "resnet20", "--input", "3,a"], "--input wants sizes such as 3,224,224"),
        (["inspect", "resnet20", "--input", "4,32,32"], "does not run on"),
        (["inspect", "resnet20", "--ratio", "1.5"], "ratio must be a number above 0 and below 1"),
        (["train", "nope"], "there is no recipe or file 'nope'"),
        (["train", "digits", "--set", "epochs.shrnk=3"], "epochs.shrnk: unknown key; did you mean 'shrink'?"),
        (["recipes", "digit"], "did you mean digits?"),
        (["eval", "/nowhere"], "/nowhere"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *words) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.startswith("pcshrink: ")
    assert len(told.splitlines()) == 1
    assert "Traceback" not in told


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCSHRINK_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["pcshrink", "recipes", "digit"])
    with pytest.raises(ValueError, match="did you mean digits"):
        cli.main()


def test_unknown_options_are_refused_by_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "train", "digits", "--nonsense") == 2
