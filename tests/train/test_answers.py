"""Images without labels: the dense network labels them, and a whole run meets its widths."""

import json

import numpy as np
import pytest

from pcshrink.data import load_dataset
from pcshrink.errors import CheckpointError
from pcshrink.train.answers import FILE, kept_answers
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.run import train

pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.train


def recipe(root, **shrink):
    return check_recipe({
        "model": {"name": "resnet20"},
        "data": {"name": "unlabelled", "root": str(root), "holdout": 0.25, "image_size": 16,
                 "resize_size": 18, "batch_size": 8, "workers": 0},
        "epochs": {"warmup": 1, "shrink": 2, "settle": 1},
        "optimizer": {"lr": 0.01},
        "train": {"threads": 1},
        "shrink": {"gates": "fold", **shrink},
        "output": {"latency": False},
    })  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for number in range(32):
        noise = np.random.default_rng(number).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number:03}.png")
    return folder


@pytest.fixture(scope="module")
def first(root, tmp_path_factory):
    return train(recipe(root, budget={"madds": 0.6}), tmp_path_factory.mktemp("first"), quiet=True)


def test_disagreement_is_measured(first):
    assert first.measured == "disagreement"
    assert first.dense["error"] == 0
    assert "disagreement" in first.table()
    answers = json.loads((first.folder / FILE).read_text())
    assert (len(answers["labels"]), answers["outputs"]) == (32, 10)


def test_widths_of_another_run_are_reached(first, root, tmp_path):
    second = train(recipe(root, like=str(first.folder)), tmp_path, quiet=True)
    assert second.widths == first.widths


def test_kept_answers_must_be_there(root, tmp_path):
    settings = recipe(root).data
    data = load_dataset("unlabelled", root, settings.settings)
    with pytest.raises(CheckpointError, match="is missing"):
        kept_answers(data, tmp_path)
