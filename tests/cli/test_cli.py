"""The command line: every verb, and every mistake as one line with exit code 2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml

from pcshrink.artifact import load
from pcshrink.cli.main import app, main
from pcshrink.data import DataConfig, load_dataset
from pcshrink.data.digits import load_digits
from pcshrink.train.recipe.read import recipe_names
from pcshrink.train.run import train
from testing.training import TINY, tiny


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pcshrink", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("finished")
    train(tiny(epochs={"dense": 1, "shrink": 1, "settle": 1}), folder, quiet=True)
    return folder


def commands(command: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the command line with the words that lead to it."""
    yield above, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *above, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "pcshrink")
def test_every_command_has_help(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [each.name for each in COMMANDS[words].params if not getattr(each, "help", None)] == []
    texts = []
    for option in ("-h", "--help"):
        assert call(monkeypatch, *words, option) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "-h, --help" in texts[0]


def test_summaries_are_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    call(monkeypatch, "--help")
    listed = capsys.readouterr().out.partition("Commands:")[2].partition("Examples:")[0]
    assert "..." not in listed


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"pcshrink {metadata.version('pcshrink')}\n"


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "--command")]
)
def test_shell_completion_can_be_installed(shell: str, mark: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pcshrink", "--show-completion", shell], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert mark in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tr", {"train"}),
        ("train dig", {"digits"}),
        ("recipes imagenet-vgg", {"imagenet-vgg16-b"}),
        ("bench --runtime o", {"onnxruntime", "openvino"}),
        ("widths --runtime c", {"compiled"}),
        ("export x --format pt", {"pt2"}),
        ("data cifar10 --source n", {"npm"}),
        ("compare dig", {"digits"}),
        ("ablate digits --table a", {"alpha"}),
    ],
)
def test_shells_are_offered_words(
    typed: str, offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PCSHRINK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"pcshrink {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    call(monkeypatch)
    assert set(capsys.readouterr().out.split()) == offered


def test_a_missing_library_is_named_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    assert call(monkeypatch, "train", "digits", "--out", "/nowhere/at/all") == 2
    assert re.search(r"needs lightning_fabric; install it with `pip install .*\[train\]", capsys.readouterr().err)


def test_a_folder_that_cannot_be_made_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert call(monkeypatch, "train", "digits", "--out", str(tmp_path / "file" / "out")) == 2
    told = capsys.readouterr().err
    assert "Not a directory" in told
    assert len(told.splitlines()) == 1


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
    shown = capsys.readouterr().out
    assert f"error {expected:.2f} % (accuracy {100 - expected:.2f} %), top-5 error" in shown
    assert "on 360 images of digits" in shown


@pytest.mark.train
def test_predict_and_info(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image")
    _, _, images, _ = load_digits()
    for number in range(20):
        image.fromarray(images[number, 0].numpy()).save(tmp_path / f"{number:02}.png")
    assert call(monkeypatch, "predict", str(finished), str(tmp_path), "--top", "3", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    model = load(finished / "model")
    with torch.no_grad():
        seen = load_dataset("digits", config=DataConfig(eval_batch_size=20))
        wanted = model(next(seen.val.batches())[0]).argmax(1)
    assert [each["names"][0] for each in found] == [str(int(label)) for label in wanted]
    assert all(len(each["shares"]) == 3 for each in found)
    assert call(monkeypatch, "export", str(finished)) == 0
    capsys.readouterr()
    assert call(monkeypatch, "predict", str(finished / "model" / "model.onnx"), str(tmp_path / "00.png")) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / '00.png'}: {int(wanted[0])} ")
    assert call(monkeypatch, "info", str(finished)) == 0
    shown = capsys.readouterr().out
    for text in ("digitsnet", "finished in", "accuracy", "0, 1, 2", "0.3054", "channels in", "budget", ", reached "):
        assert text in shown
    assert call(monkeypatch, "info", str(tmp_path)) == 2
    assert "holds neither a run" in capsys.readouterr().err


def test_data_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    for split, name, colour in [("train", "a", 1), ("train", "b", 2), ("val", "a", 3), ("val", "b", 4)]:
        (tmp_path / split / name).mkdir(parents=True)
        image.new("RGB", (30, 40), (colour, 0, 0)).save(tmp_path / split / name / "0.png")
    assert call(monkeypatch, "data", "check", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    assert "smallest image: 30 x 40" in shown
    assert "2 of 2 classes have fewer than 20 training images" in shown
    (tmp_path / "val" / "a" / "1.png").write_text("no image")
    assert call(monkeypatch, "data", "check", str(tmp_path), "--json") == 1
    assert json.loads(capsys.readouterr().out)["sound"] is False


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
        (["inspect", "resnet20", "--input", "3,a"], "--input wants whole numbers of at least 1 such as 3,224,224"),
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
        main()


def test_unknown_options_are_refused_by_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "train", "digits", "--nonsense") == 2
