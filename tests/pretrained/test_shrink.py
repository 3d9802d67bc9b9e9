"""From a pretrained network and images to a faster one: a whole run, the plan before it, and bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from pcshrink.cli.main import app
from pcshrink.errors import CheckpointError, ConfigError, DataError
from pcshrink.models import create
from pcshrink.pretrained.prepare import prepare
from pcshrink.pretrained.request import Goal, Request
from pcshrink.pretrained.run import run_one
from pcshrink.train.recipe.read import load_recipe
from testing.hurry import short_timings

pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.train

QUICK = ("epochs.shrink=1", "epochs.settle=1", "data.workers=0", "output.onnx=false", "output.latency=false")


def pictures(folder, count):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (36, 36, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number:03}.png")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "net.pth"
    torch.save(create("resnet20", num_classes=3).state_dict(), path)
    return path


def request_for(images, weights, out, budget="madds=0.6", **more):
    return Request(model="resnet20", images=images, weights=weights, out=out, goal=Goal.parse(budget), **more)


def test_a_whole_run_without_labels(weights, tmp_path, monkeypatch):
    short_timings(monkeypatch.setattr)
    pictures(tmp_path / "images", 40)
    request = request_for(tmp_path / "images", weights, tmp_path / "out", settings=QUICK)
    prepared = prepare(request, request.goal)
    assert (prepared.network.outputs, prepared.labelled, prepared.images) == (3, False, 32)
    shrunk = run_one(prepared, request.out, resume=False, trust=False, quiet=True)
    assert shrunk.madds <= 0.61
    assert shrunk.paired.first_error == 0  # it is measured against the dense network itself
    assert len((request.out / "held-out.txt").read_text().splitlines()) == 8
    assert load_recipe(str(request.out / "shrink.yaml")) == prepared.recipe
    longer = prepare(replace(request, settings=(*QUICK, "epochs.settle=5")), request.goal)
    assert run_one(longer, request.out, resume=True, trust=False, quiet=True) == shrunk
    other = prepare(replace(request, seed=1), request.goal)
    with pytest.raises(ConfigError, match="different: seed, data"):
        run_one(other, request.out, resume=True, trust=False, quiet=True)
    kept = json.loads((request.out / "shrunk.json").read_text())
    assert kept["paired"]["images"] == 8
    assert 0 < kept["latency_low"] <= kept["latency"] <= kept["latency_high"]


def test_a_classifier_of_transformers(tmp_path, monkeypatch, capsys):
    """Naming it is enough: the file that is written needs no trust in the run that wrote it."""
    transformers = pytest.importorskip("transformers")
    short_timings(monkeypatch.setattr)
    config = transformers.ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 32], depths=[1, 1], layer_type="basic", num_labels=3
    )
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "theirs")
    pictures(tmp_path / "images", 40)
    capsys.readouterr()
    request = request_for(tmp_path / "images", None, tmp_path / "out", settings=(*QUICK, "data.image_size=32"))
    request = replace(request, model=f"transformers:{tmp_path / 'theirs'}")
    prepared = prepare(request, request.goal)
    shrunk = run_one(prepared, request.out, resume=False, trust=False, quiet=True)
    assert shrunk.madds <= 0.61
    assert "Loading weights" not in capsys.readouterr().err


def test_the_dry_run_trains_nothing(weights, tmp_path):
    for name in ("a", "b", "c"):
        pictures(tmp_path / "images" / name, 12)
    words = ["shrink", "resnet20", "--images", str(tmp_path / "images"), "--weights", str(weights)]
    said = CliRunner().invoke(app, [*words, "--budget", "max-drop=1", "--out", str(tmp_path / "out"), "--dry-run"])
    assert said.exit_code == 0, said.output
    assert "30 to train on, 6 held out; measured by the error on their labels" in said.output
    assert "4 such runs" in said.output
    assert not (tmp_path / "out").exists()


def test_settings_decide_what_is_timed_and_told(weights, tmp_path):
    pictures(tmp_path / "images", 40)
    request = request_for(tmp_path / "images", weights, tmp_path / "out")
    usual = prepare(request, request.goal)
    assert usual.recipe.shrink.method == "surgeon"
    assert (usual.recipe.epochs.warmup, usual.recipe.epochs.shrink) == (0, 1)
    larger = prepare(replace(request, settings=("data.image_size=40", "epochs.settle=1")), request.goal)
    assert larger.network.example(1).shape == (1, 3, 40, 40)
    assert larger.schedule.seconds < usual.schedule.seconds
    pushed = prepare(replace(request, settings=("shrink.method=pcs",)), request.goal)
    assert pushed.recipe.shrink.settings.init_salience == 0.99
    assert pushed.recipe.epochs.shrink > 1


@pytest.mark.parametrize(
    ("classes", "count", "words"),
    [
        (("cat",), 12, "all images are of one class, 'cat'.*--no-labels"),
        (("a", "b"), 6, "the images have 2 classes and the network 3.*--no-labels"),
        (("a", "b", "c"), 1, "too few to hold any out"),
    ],
)
def test_labels_that_cannot_be(weights, tmp_path, classes, count, words):
    for name in classes:
        pictures(tmp_path / "images" / name, count)
    request = request_for(tmp_path / "images", weights, tmp_path / "out")
    with pytest.raises(DataError, match=words):
        prepare(request, request.goal)


def test_fewer_images_than_classes(weights, tmp_path):
    """Without labels that is no error, but it is said."""
    pictures(tmp_path / "images", 3)
    request = request_for(tmp_path / "images", weights, tmp_path / "out")
    said = prepare(request, request.goal).text()
    assert "note: fewer images to train on (2) than classes (3): some classes are never seen" in said
    pictures(tmp_path / "images", 12)
    assert "fewer images" not in prepare(request, request.goal).text()


def test_the_number_of_classes_is_read_off_any_file(weights, tmp_path):
    pictures(tmp_path / "images", 12)
    sorted_file = tmp_path / "net.safetensors"  # the head is not the last tensor there
    save_file(torch.load(weights, weights_only=True), sorted_file)
    request = request_for(tmp_path / "images", sorted_file, tmp_path / "out")
    assert prepare(request, request.goal).network.outputs == 3


def test_a_checkpoint_that_cannot_be(weights, tmp_path):
    pictures(tmp_path / "images", 12)
    broken, other = tmp_path / "broken.pth", tmp_path / "other.pth"
    broken.write_bytes(b"nothing")
    state = torch.load(weights, weights_only=True)
    torch.save({name.replace("layer1", "stage1"): tensor for name, tensor in state.items()}, other)
    for path, words in ((broken, "cannot be read"), (other, r"stage1.*perhaps layer1")):
        request = request_for(tmp_path / "images", path, tmp_path / "out")
        with pytest.raises(CheckpointError, match=words):
            prepare(request, request.goal)


@pytest.mark.parametrize(
    ("text", "words"),
    [("latency=1.2", "meets it already"), ("madds=0", "above 0"), ("max-drop=0", "points"), ("speed=2", "wants")],
)
def test_budgets_that_make_no_sense(text, words):
    with pytest.raises(ConfigError, match=words):
        Goal.parse(text)


def test_a_budget_out_of_reach(weights, tmp_path):
    pictures(tmp_path / "images", 20)
    request = request_for(tmp_path / "images", weights, tmp_path / "out", "madds=0.001", settings=QUICK)
    with pytest.raises(ConfigError, match="madds"):
        run_one(prepare(request, request.goal), request.out, resume=False, trust=False, quiet=True)


def test_own_code_must_be_trusted(tmp_path):
    request = Request(model="some.module:net", images=tmp_path, out=tmp_path / "out", goal=Goal.parse("madds=0.5"))
    with pytest.raises(ConfigError, match="--trust"):
        prepare(request, request.goal)
