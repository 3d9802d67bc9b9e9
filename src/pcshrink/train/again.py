"""Evaluate what a run saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pcshrink.artifact import load
from pcshrink.data import DATASETS
from pcshrink.errors import CheckpointError
from pcshrink.train.evaluate import evaluate
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.recipe.schema import DataSection, Recipe
from pcshrink.train.run import open_section


def evaluate_saved(
    folder: Path, data: str | None = None, root: Path | None = None, *, trust: bool = False
) -> dict[str, Any]:
    """The error of a saved network.

    Args:
        folder: A run's folder, or that of a saved model.
        data: The data set; default: the one it was trained on.
        root: Where the data are; default: where they were.
        trust: Run a model builder or data set of the user's own that the saved file or the recipe names.

    Raises:
        CheckpointError: There is no saved model.
        ConfigError: There is no such data set, or it is code that nobody trusts.
        DataError: The data are missing or damaged.
    """
    home = folder / "model" if (folder / "model").is_dir() else folder
    model = load(home, trust_builder=trust)
    path = next((p for p in (folder / "recipe.yaml", folder.parent / "recipe.yaml") if p.is_file()), None)
    section, seed, channels_last = None, 0, False
    if path is not None:
        recipe = _recipe_of(path)
        section, seed, channels_last = recipe.data, recipe.seed, recipe.train.channels_last
    if data is not None and (section is None or section.name != data):
        section = DataSection.model_validate({"name": DATASETS.check(data), "root": root})
    elif root is not None and section is not None:
        section = section.model_copy(update={"root": root})
    if section is None:
        message = f"{folder} has no recipe.yaml that says which data it was trained on; pass --data"
        raise CheckpointError(message)
    opened = open_section(section, seed, channels_last, trust=trust)
    score = evaluate(model, opened.val)
    return {"error": score.error, "loss": score.loss, "images": opened.val.num_samples, "data": section.name}


def _recipe_of(path: Path) -> Recipe:
    """What a run's recipe says about network and data; how it shrank may be said in words of an earlier version."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    wanted = {key: content[key] for key in ("model", "data", "train", "seed") if key in content}
    return check_recipe(wanted | {"epochs": {"dense": 1}}, str(path))
