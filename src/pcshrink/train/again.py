"""Evaluate what a run saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pcshrink.artifact import Artifact, load, read
from pcshrink.common.preprocessing import IMAGENET, Preprocessing
from pcshrink.data import DATASETS
from pcshrink.errors import CheckpointError, ConfigError, DataError
from pcshrink.models import usual_preprocessing
from pcshrink.train.answers import kept_answers
from pcshrink.train.evaluate import check_fit, evaluate
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.recipe.schema import DataSection, Recipe
from pcshrink.train.recipe.yaml_text import parse_yaml, read_yaml_text
from pcshrink.train.run import open_section

_EVALUATION = ("val", "valid", "validation", "test", "eval")  # what folders to evaluate on are called


def evaluate_saved(
    folder: Path, data: str | None = None, root: Path | None = None, *, classes: Path | None = None, trust: bool = False
) -> dict[str, Any]:
    """The error of a saved network, on images as it was trained to see them.

    Args:
        folder: A run's folder, or that of a saved model.
        data: The data set; default: the one it was trained on.
        root: Where the data are; default: where they were. Of a folder, ``root/val`` or plain class folders will do.
        classes: A file that says which class folder belongs to which output (``pcshrink.data.class_order``); default:
            folders are called as the classes that were saved with the network.
        trust: Run a model builder or data set of the user's own that the saved file or the recipe names.

    Raises:
        CheckpointError: There is no saved model.
        ConfigError: There is no such data set, or it is code that nobody trusts.
        DataError: The data are missing or damaged, or have other classes than the network.
    """
    home = folder / "model" if (folder / "model").is_dir() else folder
    model, saved = load(home, trust_builder=trust), read(home)
    path = next((p for p in (folder / "recipe.yaml", folder.parent / "recipe.yaml") if p.is_file()), None)
    recipe = _recipe_of(path) if path is not None else None
    section = _section(folder, recipe, data, root)
    as_trained = recipe is not None and (section.name, section.root) == (recipe.data.name, recipe.data.root)
    options = DATASETS.get(section.name, trust=trust).options
    if saved.preprocessing is not None:
        section, seen = _as_saved(section, saved.preprocessing, options), saved.preprocessing
        note = ""
    elif recipe is not None and section.name == recipe.data.name:
        seen, note = IMAGENET, ""  # runs of the time before it was saved took what is usual for ImageNet
    else:
        seen, note = _guess(saved), f"{home} does not say how images become its input; the usual was assumed"
    if classes is not None:
        section = _with(section, classes=classes)
    # What was held out of a folder for want of a val can only be told from the whole folder.
    whole = as_trained and not Path(section.root or ".", "val").is_dir()
    seed, channels_last = (recipe.seed, recipe.train.channels_last) if recipe is not None else (0, False)
    try:
        opened = open_section(section, seed, channels_last, preprocessing=seen, evaluation_only=not whole, trust=trust)
    except ConfigError as error:
        if saved.preprocessing is None:
            raise
        message = f"the network was saved for images of {_sizes(seen.input_size)}, not for {section.name!r}: {error}"
        raise DataError(message) from error
    note = note or _plain_folder_note(section, as_trained=as_trained)
    opened = kept_answers(opened, folder if (folder / "model").is_dir() else folder.parent)
    if saved.preprocessing is not None and opened.input_shape != seen.input_size:
        wanted, got = _sizes(seen.input_size), _sizes(opened.input_shape)
        message = f"the network was saved for images of {wanted}, those of {section.name!r} have {got}"
        raise DataError(message)
    check_fit(model, opened)
    score = evaluate(model, opened.val)
    return score.figures() | {"accuracy": 100 - score.error, "data": section.name} | ({"note": note} if note else {})


def _plain_folder_note(section: DataSection, *, as_trained: bool) -> str:
    """A copied network cannot tell which images of a folder without parts it was trained on."""
    root = section.root
    if as_trained or section.name != "folder" or root is None or (root / "val").is_dir() or root.name in _EVALUATION:
        return ""
    return f"{root} has no val part, so all of its images count, with those that the network may have been trained on"


def _sizes(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _section(folder: Path, recipe: Recipe | None, data: str | None, root: Path | None) -> DataSection:
    section = recipe.data if recipe is not None else None
    if data is not None and (section is None or section.name != data):
        return DataSection.model_validate({"name": DATASETS.check(data), "root": root})
    if section is None:
        message = f"{folder} has no recipe.yaml that says which data it was trained on; pass --data"
        raise CheckpointError(message)
    return section if root is None else section.model_copy(update={"root": root})


def _as_saved(section: DataSection, seen: Preprocessing, options: Collection[str]) -> DataSection:
    """The same data, with everything about the pixels left to what was saved with the network."""
    names = seen.classes if seen.classes and "classes" in options else None
    return _with(
        section, image_size=None, resize_size=None, interpolation=None, mean=seen.mean, std=seen.std, classes=names
    )  # fmt: skip


def _with(section: DataSection, **settings: Any) -> DataSection:
    return section.model_copy(update={"settings": dataclasses.replace(section.settings, **settings)})


def _guess(saved: Artifact) -> Preprocessing:
    """What a network's authors say, at the size it was saved with."""
    try:
        usual = usual_preprocessing(saved.builder, saved.builder_args) if saved.builder is not None else IMAGENET
    except ConfigError:  # its library is not there or has another name for it
        usual = IMAGENET
    shape = saved.input_shape
    if shape is None or len(shape) != 3 or shape[0] != usual.input_size[0]:
        return usual
    size = shape[1] if shape[1] == shape[2] else (shape[1], shape[2])
    return dataclasses.replace(usual, input_size=(shape[0], shape[1], shape[2]), resize=usual.resize_for(size))


def _recipe_of(path: Path) -> Recipe:
    """What a run's recipe says about network and data; how it shrank may be said in words of an earlier version."""
    content = parse_yaml(read_yaml_text(path), str(path))
    wanted = {key: content[key] for key in ("model", "data", "train", "seed") if key in content}
    return check_recipe(wanted | {"epochs": {"dense": 1}}, str(path))
