"""A data set of the user's own works wherever a built-in one does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pcshrink.data import DATASETS, ArraySet, DataConfig, DataSet, ImageData, load_dataset
from pcshrink.errors import ConfigError, DataError
from pcshrink.train.again import evaluate_saved
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.run import train
from testing.training import TINY

STRIPES = ArraySet(name="stripes", classes=("across", "down"), mean=(0.5,), std=(0.5,), padding=0, flip=False)


def read_stripes(root: Any) -> tuple[torch.Tensor, ...]:
    """Stripes across and down, in turns."""
    across = torch.zeros(1, 16, 16, dtype=torch.uint8)
    across[:, ::2] = 255
    images, labels = torch.stack([across, across.mT] * 64), torch.arange(128) % 2
    return images, labels, images[:20], labels[:20]


def load_stripes(root: Any, config: DataConfig, *, rank: int, world_size: int, device: Any) -> ImageData:
    return STRIPES.open(read_stripes(root), config, rank, world_size, device)  # type: ignore[arg-type]


@pytest.fixture
def registered() -> Iterator[str]:
    DATASETS.register("stripes", STRIPES.data_set(read_stripes, needs_root=True))  # type: ignore[arg-type]
    yield "stripes"
    DATASETS.unregister("stripes")


MODULE = f"""
from __future__ import annotations
import torch
from pcshrink.data import ArraySet
STRIPES = {STRIPES!r}
{inspect.getsource(read_stripes)}
{inspect.getsource(load_stripes)}
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same in a module that was never imported."""
    name = "own_" + re.sub(r"\W", "_", tmp_path.name)
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return f"{name}:load_stripes"


def recipe_with(name: str) -> Any:
    plain = {key: TINY[key] for key in ("model", "output")}
    return check_recipe({**plain, "data": {"name": name, "batch_size": 32, "root": "."}, "epochs": {"dense": 1}})


@pytest.mark.unit
def test_a_registered_set(registered: str, tmp_path: Path) -> None:
    data = load_dataset(registered, tmp_path, DataConfig(batch_size=32, cutout=2))
    images, labels = next(data.train.batches(0))
    assert (data.name, data.num_classes, images.shape) == ("stripes", 2, (32, 1, 16, 16))
    assert labels.unique().tolist() == [0, 1]
    with pytest.raises(ConfigError, match="the data set 'stripes' needs a root folder"):
        load_dataset(registered)
    with pytest.raises(ConfigError, match="image_size has no effect on the data set 'stripes'"):
        load_dataset(registered, tmp_path, DataConfig(image_size=32))
    with pytest.raises(ConfigError, match="did you mean 'stripes'"):
        load_dataset("stripe")


@pytest.mark.unit
def test_the_loader_itself() -> None:
    assert load_dataset(load_stripes, config=DataConfig(batch_size=32)).num_classes == 2
    assert load_dataset(DataSet(name="s", load=load_stripes), config=DataConfig(batch_size=32)).val.num_samples == 20


@pytest.mark.unit
def test_a_recipe_takes_names_that_are_registered(registered: str) -> None:
    assert recipe_with(registered).data.name == "stripes"
    with pytest.raises(ConfigError, match=r"data\.name: unknown data set 'cifar', did you mean 'cifar10'\?"):
        recipe_with("cifar")


@pytest.mark.train
def test_a_recipe_that_names_code(own_module: str, tmp_path: Path) -> None:
    recipe = recipe_with(own_module)
    with pytest.raises(ConfigError, match=r"the data set 'own_.*:load_stripes' is code of your own.*--trust"):
        train(recipe, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
    result = train(recipe, tmp_path / "out", quiet=True, trust=True)
    again = evaluate_saved(tmp_path / "out", trust=True)
    assert (again["data"], again["images"]) == (own_module, 20)
    assert result.dense is not None
    assert again["error"] == result.dense["error"]


@pytest.mark.unit
def test_code_by_name(own_module: str) -> None:
    with pytest.raises(ConfigError, match="is code of your own"):
        load_dataset(own_module)
    data = load_dataset(own_module, config=DataConfig(batch_size=32), trust=True)
    assert data.classes == ("across", "down")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (3, "must be of the class DataSet or a function"),
        (lambda *_arguments, **_place: [1, 2], "must give an ImageData, got list"),
    ],
)
def test_no_data_set(thing: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_dataset(thing)


@pytest.mark.unit
def test_no_such_option() -> None:
    with pytest.raises(ConfigError, match=r"options of the data set 's' must be of padding, .*; got \['colour'\]"):
        DataSet(name="s", load=load_stripes, options=("colour",))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (
            torch.zeros(8, 1, 4, 4),
            torch.zeros(8).long(),
            r"must be uint8 \(N, C, H, W\) with N labels, got torch.float32",
        ),
        (torch.zeros(8, 4, 4, dtype=torch.uint8), torch.zeros(8).long(), "must be uint8"),
        (torch.zeros(8, 1, 4, 4, dtype=torch.uint8), torch.zeros(7).long(), "with N labels"),
        (
            torch.zeros(8, 1, 4, 4, dtype=torch.uint8),
            torch.full((8,), 2),
            "labels of 'stripes' must be int64 from 0 to 1",
        ),
    ],
)
def test_tensors_that_do_not_fit(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        STRIPES.open((images, labels, images, labels), DataConfig(batch_size=4))
