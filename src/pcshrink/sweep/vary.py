"""Recipes made from one recipe: another method, another budget, other settings, a given start."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pcshrink.budget.config import METRICS
from pcshrink.errors import ConfigError
from pcshrink.methods.registry import method_class
from pcshrink.train.recipe.read import check_recipe, override_
from pcshrink.train.recipe.schema import USUAL_FOLD_OVER, Recipe, ShrinkSection

OWN_KEYS = [key for key in ShrinkSection.model_fields if key != "settings"]


def shrink_section(recipe: Recipe, what: str) -> ShrinkSection:
    """The recipe's shrink section.

    Raises:
        ConfigError: There is none, so that there is nothing to ``what``.
    """
    if recipe.shrink is None:
        message = f"the recipe has no shrink section, so there is nothing to {what}; add one, such as shrink: {{}}"
        raise ConfigError(message)
    return recipe.shrink


def with_method(recipe: Recipe, method: str) -> Recipe:
    """The same recipe with another method.

    Settings that both methods have from a common base stay; the others are the method's defaults. A method that takes
    no budget gets none, and one whose mask depends on the input keeps its gates, since nothing can be cut or folded.

    Raises:
        ConfigError: There is no such method, or the recipe does not suit it.
    """
    section = shrink_section(recipe, "give another method")
    chosen, content = method_class(method), recipe.model_dump(mode="json")
    shared = _shared(type(section.settings), chosen.Config)
    content["shrink"] = {key: value for key, value in content["shrink"].items() if key in OWN_KEYS or key in shared}
    content["shrink"]["method"] = method
    if not chosen.takes_budget():
        content["shrink"] |= {"budget": None, "like": None}
    if not chosen.static:
        content["shrink"] |= {"gates": "keep", "compact_every": 0, "fold_over": USUAL_FOLD_OVER}
    return check_recipe(content, f"method {method}")


def _shared(one: type[Any], other: type[Any]) -> set[str]:
    """The fields that two settings classes have from the same class: equal names alone may mean different things."""
    names = {f.name for f in dataclasses.fields(one)} & {f.name for f in dataclasses.fields(other)}
    return {name for name in names if _home(one, name) is _home(other, name)}


def _home(config: type[Any], name: str) -> type[Any] | None:
    return next((each for each in config.__mro__ if name in inspect.get_annotations(each)), None)


def with_budget(recipe: Recipe, share: float | None) -> Recipe:
    """The same recipe with another share of the cost that its budget limits (madds if it has none); None for no budget.

    Raises:
        ConfigError: The recipe has no shrink section, or such a budget does not suit it.
    """
    content, budget = recipe.model_dump(mode="json"), shrink_section(recipe, "budget").budget
    limited = next((m for m in (*METRICS, "latency") if budget and getattr(budget, m) is not None), "madds")
    asked = (content["shrink"]["budget"] or {}) | {limited: share}
    content["shrink"] |= {"budget": None if share is None else asked, "like": None}
    return check_recipe(content, f"budget {share:g}" if share is not None else "recipe")


def with_overrides(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """The same recipe with ``section.key=value`` changed.

    Raises:
        ConfigError: A key or a value is wrong.
    """
    texts = list(overrides)
    for text in texts:
        key, _, value = text.partition("=")
        if key.strip() == "shrink.method":
            recipe = with_method(recipe, value.strip())
    content = recipe.model_dump(mode="json")
    for text in texts:
        if text.partition("=")[0].strip() != "shrink.method":
            override_(content, text)
    return check_recipe(content)


def starting_from(recipe: Recipe, weights: Path, *, seed: int | None = None) -> Recipe:
    """The same recipe without a dense phase, from these weights."""
    content = recipe.model_dump(mode="json")
    content["model"] |= {"weights": str(weights), "pretrained": False}
    content["epochs"]["dense"] = 0
    content["seed"] = content["seed"] if seed is None else seed
    return check_recipe(content)


def dense_only(recipe: Recipe) -> Recipe:
    """The dense phase of a recipe alone."""
    content = recipe.model_dump(mode="json")
    content |= {"shrink": None, "distill": None, "epochs": {"dense": recipe.epochs.dense}}
    content["output"] |= {"export": [], "onnx": False, "latency": False}
    return check_recipe(content)


def without_shrinking(recipe: Recipe) -> Recipe:
    """As many epochs of the dense network alone; a teacher that is this network before it shrinks falls away."""
    content = recipe.model_dump(mode="json")
    if recipe.distill is not None and recipe.distill.teacher == "dense":
        content["distill"] = None
    return check_recipe(content | {"shrink": None, "epochs": {"dense": recipe.epochs.total}})


def start_of(recipe: Recipe) -> str:
    """What the runs start from, in words."""
    model, epochs = recipe.model, recipe.epochs.dense
    if epochs:
        return f"one dense network, trained once for {epochs} epoch{'s' * (epochs > 1)}"
    if model.weights is not None:
        return f"the weights in {model.weights.name}"
    return "the library's pretrained weights" if model.pretrained else "fresh weights, the same in all runs of a seed"


def seeds_of(recipe: Recipe, count: int) -> range:
    """The seeds of so many runs, from the recipe's own upwards.

    Raises:
        ConfigError: Not even one is asked for.
    """
    check_count("seeds", count)
    return range(recipe.seed, recipe.seed + count)


def check_count(name: str, value: int) -> None:
    """See that a number is one of things.

    Raises:
        ConfigError: It is not whole, or below 1.
    """
    if type(value) is not int or value < 1:
        message = f"{name} must be a whole number of at least 1, got {value!r}"
        raise ConfigError(message)
