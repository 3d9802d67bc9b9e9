"""The results that are kept in ``zoo/``: they load, they cost what they say, and they are as good as they say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import pcshrink as pcs
from pcshrink.artifact import load_weights, read
from pcshrink.data import DataConfig, load_dataset
from pcshrink.train.recipe.read import check_recipe

ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted(path.parent for path in (ROOT / "zoo").glob("*/results.json"))
FIRST_SCHEMA = Path(__file__).parent / "first_schema"  # a run with kept gates, saved by an early version
LARGEST = 2_000_000  # bytes


def facts(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return content


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_network_loads_and_costs_what_it_says(folder: Path) -> None:
    said = facts(folder)
    model = pcs.load(folder)
    example = torch.randn(1, 3, 32, 32)
    layers, paper = pcs.profile(model, example), pcs.profile(model, example, "paper")
    assert (layers.params, layers.madds, layers.mem_access) == (said["params"], said["madds"], said["mem_access"])
    assert (paper.madds, paper.mem_access) == (said["paper_madds"], said["paper_mem_access"])
    assert max(path.stat().st_size for path in folder.iterdir()) < LARGEST


@pytest.mark.parametrize("folder", [FIRST_SCHEMA, ROOT / "zoo" / "resnet20-dense"], ids=lambda folder: folder.name)
def test_files_of_the_first_schema_load_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    record = json.loads((folder / "pcshrink.json").read_text())
    assert record["schema"] == 1
    model, saved = pcs.load(folder), load_weights(folder / "model.safetensors")
    state = model.state_dict()
    for name, tensor in saved.items():
        assert state[name].dtype == tensor.dtype
        assert torch.equal(state[name], tensor), name
    # What gates have had since then is as if it were not there.
    newer = [tensor for name, tensor in state.items() if name not in saved]
    assert all(bool((tensor == 1).all()) for tensor in newer)
    again = pcs.load(
        pcs.save(tmp_path, model, read(folder).plan, record["builder"], builder_args=record["builder_args"])
    )
    assert json.loads((tmp_path / "pcshrink.json").read_text())["schema"] == 2
    images = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(images), model(images))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_recipe_and_log_belong_to_the_result(folder: Path) -> None:
    said = facts(folder)
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert len(rows) == sum(recipe["epochs"].values()) == said["epochs"]
    assert recipe["seed"] == said["seed"]
    # How it shrank is said in the words of the version that trained it; everything else is still understood.
    check_recipe({key: recipe[key] for key in ("model", "data", "optimizer", "train")} | {"epochs": {"dense": 1}})
    # The log is of the training precision; the result is the same network in float32.
    assert rows[-1]["error"] == pytest.approx(said["error"], abs=0.3)


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_a_kept_network_on_real_images(folder: Path) -> None:
    root = Path(os.environ.get("PCSHRINK_CIFAR10", ROOT / "data" / "cifar10"))
    if not root.is_dir():
        pytest.skip("no CIFAR-10: set PCSHRINK_CIFAR10 to a folder made by `pcshrink data cifar10 --root DIR`")
    slice_ = facts(folder)["first_images"]
    data = load_dataset("cifar10", root, DataConfig(eval_batch_size=slice_["images"]))
    images, labels = next(iter(data.val.batches()))
    with torch.no_grad():
        wrong = int((pcs.load(folder)(images).argmax(-1) != labels).sum())
    assert wrong == slice_["wrong"]
