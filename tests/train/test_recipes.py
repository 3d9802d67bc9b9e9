"""Recipes as they are read and refused, and what they ask for: the timetable, mixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pcshrink.errors import ConfigError
from pcshrink.train.objective import mix
from pcshrink.train.recipe.read import check_recipe, dump_recipe, load_recipe, recipe_names
from pcshrink.train.recipe.schema import EpochsSection, OptimizerSection
from pcshrink.train.timetable import Timetable


@pytest.mark.parametrize("name", recipe_names())
def test_built_in_recipes_are_valid_and_survive_writing(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "again.yaml").write_text(dump_recipe(recipe))
    assert load_recipe(tmp_path / "again.yaml") == recipe
    assert recipe.description


def test_the_recipes_of_the_paper_are_there() -> None:
    wanted = {"digits", "folder", "imagenet-mobilenetv2", "cifar10-resnet32-dense", "cifar10-resnet32"}
    wanted |= {"cifar10-resnet20", "imagenet-resnet18"}
    wanted |= {f"cifar10-resnet20-{kind}" for kind in ("dense", "distilled", "taught", "truncation")}
    wanted |= {f"cifar10-resnet20-{p}" for p in "abc"} | {f"imagenet-resnet18-{p}" for p in "abc"}
    assert wanted | {"imagenet-resnet34-b", "imagenet-vgg16-b"} == set(recipe_names())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epochs.shrnk=3", r"epochs\.shrnk: unknown key; did you mean 'shrink'\?"),
        ("shrink.budget.madd=0.4", r"shrink\.budget\.madd: unknown key; did you mean 'madds'\?"),
        ("optimizer.lr=-1", r"optimizer\.lr: input should be greater than 0; got -1"),
        ("optimizer.lr=fast", r"optimizer\.lr: input should be a valid number.*got 'fast'"),
        ("data.name=cifar", r"data\.name: unknown data set 'cifar', did you mean 'cifar10'\?"),
        ("shrink.like=somewhere", r"shrink: budget and like both say how far"),
        ("shrink.stength=2", r"shrink\.stength: unknown key; did you mean 'strength'\?"),
        ("shrink.method=pcz", r"shrink: unknown method 'pcz', did you mean 'pcs'"),
        ("shrink.lr=0.1", r"shrink\.lr: unknown key"),
        ("shrink.min_channels=0", r"shrink\.min_channels: must be a whole number of at least 1; got 0"),
        ("shrink.budget.params=0.4", r"shrink\.budget: give exactly one of madds, params, mem_access and latency"),
        ("epochs.shrink=0", r"epochs\.shrink must be at least 1"),
        ("epochs", r"--set wants section\.key=value, got 'epochs'"),
        ("seed.x=1", r"seed.*"),
        ("model=null", r"model: input should be a valid dictionary"),
    ],
)
def test_wrong_recipes_are_refused_by_key(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("digits", [override])


def test_overrides_read_numbers_as_people_write_them() -> None:
    assert load_recipe("digits", ["optimizer.weight_decay=1e-4"]).optimizer.weight_decay == 1e-4


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no recipe or file 'digit'; did you mean digits\?"):
        load_recipe("digit")
    path = tmp_path / "bad.yaml"
    path.write_text("model: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml is not valid YAML"):
        load_recipe(path)
    path.write_text("- 1")
    with pytest.raises(ConfigError, match="must hold sections"):
        load_recipe(path)
    with pytest.raises(ConfigError, match="data: is missing and has no default"):
        check_recipe({"model": {"name": "resnet20"}, "epochs": {"dense": 1}})


def test_the_timetable() -> None:
    epochs = EpochsSection(dense=4, warmup=1, shrink=4, settle=4)
    table = Timetable(epochs, OptimizerSection(lr=0.1, lr_warmup=1), fold_over=0.5)
    assert [table.phase(e) for e in range(13)] == ["dense"] * 4 + ["warmup"] + ["shrink"] * 4 + ["settle"] * 4
    assert table.lr(0.5) == pytest.approx(0.05 * (1 + pytest.approx(0.9619, abs=1e-3).expected) / 2 * 1, abs=3e-3)
    assert table.lr(3.999) == pytest.approx(0, abs=1e-4)
    assert table.lr(4.5) == pytest.approx(0.05)  # rises again when gates are attached
    assert [table.lr(e) for e in (5, 6.5, 8.99)] == [0.1, 0.1, 0.1]  # constant while shrinking
    assert table.lr(9) == pytest.approx(0.1)
    assert table.lr(11) == pytest.approx(0.05)
    assert table.lr(12.999) == pytest.approx(0, abs=1e-4)
    assert [table.settled(e) for e in (9, 10, 11, 12)] == [0, 0.5, 1, 1]
    assert table.fold_epoch() == 11
    at_once = Timetable(epochs, OptimizerSection(), fold_over=0.0)
    assert (at_once.settled(9), at_once.fold_epoch()) == (1, 9)
    falling = Timetable(EpochsSection(dense=2, warmup=1, shrink=5, settle=4), OptimizerSection(lr=0.1, hold_lr=False))
    assert [falling.lr(e) for e in (2, 7, 11.999)] == pytest.approx([0.1, 0.05, 0], abs=1e-4)
    steps = Timetable(EpochsSection(dense=4), OptimizerSection(lr=1.0, schedule="step", milestones=(0.5, 0.75)))
    assert [steps.lr(e) for e in range(4)] == pytest.approx([1, 1, 0.1, 0.01])


def test_mixup_depends_on_the_place_only() -> None:
    images = torch.randn(6, 1, 4, 4)
    mixed, partner, own = mix(images, 0.2, seed=0, epoch=3, batch=5, rank=0)
    again = mix(images, 0.2, seed=0, epoch=3, batch=5, rank=0)
    assert torch.equal(mixed, again[0])
    assert 0.5 <= own <= 1
    assert torch.allclose(mixed, own * images + (1 - own) * images[partner])
    assert mix(images, 0.2, seed=0, epoch=3, batch=6, rank=0)[2] != own
