"""The JSON Schema of recipes accepts what the reader accepts, and refuses what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from pcshrink.cli.main import main
from pcshrink.errors import ConfigError
from pcshrink.methods.registry import METHODS
from pcshrink.train.recipe.json_schema import recipe_schema, schema_text, shipped_schema
from pcshrink.train.recipe.read import check_recipe, recipe_names, recipe_text

SMALL: dict[str, Any] = {"model": {"name": "digitsnet"}, "data": {"name": "digits"}, "epochs": {"dense": 1}}


@pytest.fixture(scope="module", autouse=True)
def only_built_in() -> Iterator[None]:
    """Methods that other tests have registered are no part of the shipped schema."""
    with METHODS.only():
        yield


@pytest.fixture(scope="module")
def validator(only_built_in: None) -> jsonschema.Draft202012Validator:
    made = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def with_shrink(**section: Any) -> dict[str, Any]:
    return SMALL | {"epochs": {"dense": 1, "shrink": 1, "settle": 1}, "shrink": section}


def test_the_shipped_file_is_current() -> None:
    remedy = "pcshrink recipes --schema > src/pcshrink/train/recipe/recipe.schema.json"
    assert shipped_schema() == schema_text(), f"run: {remedy}"


@pytest.mark.parametrize("name", recipe_names())
def test_built_in_recipes(name: str, validator: jsonschema.Draft202012Validator) -> None:
    text = recipe_text(name)
    assert text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "recipe",
    [
        SMALL,
        with_shrink(budget={"madds": 0.4}),
        with_shrink(strength="A", align="auto", ratio={"layer1.*": 0.3}),
        with_shrink(align={"layer1.*": 8, "*": 16}),
        with_shrink(method="truncation", budget={"params": 20000}),
        SMALL | {"data": {"name": "folder", "root": "images", "workers": 2, "mean": [0.5, 0.5, 0.5]}},
    ],
)
def test_both_accept(recipe: dict[str, Any], validator: jsonschema.Draft202012Validator) -> None:
    check_recipe(recipe)
    validator.validate(recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        {"model": {"name": "digitsnet"}},
        SMALL | {"epoch": {}},
        SMALL | {"epochs": {"dense": -1}},
        SMALL | {"data": {"name": "digits", "batchsize": 3}},
        SMALL | {"optimizer": {"name": "lion"}},
        with_shrink(budget={"madds": 0.4, "params": 0.4}),
        with_shrink(budget={}),
        with_shrink(method="no-such-method"),
        with_shrink(method="random", strength="A"),
        with_shrink(total_steps=3),
        with_shrink(align={"layer1.*": True}),
    ],
)
def test_both_refuse(recipe: dict[str, Any], validator: jsonschema.Draft202012Validator) -> None:
    with pytest.raises(ConfigError):
        check_recipe(recipe)
    assert not validator.is_valid(recipe)


def test_a_method_of_the_users_own_may_have_its_own_settings(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(with_shrink(method="mypackage.mymodule:Method", budget={"madds": 0.4}, speed=3))
    assert not validator.is_valid(with_shrink(budget={"madds": 0.4}, speed=3))


def test_every_key_has_a_meaning(validator: jsonschema.Draft202012Validator) -> None:
    parts = validator.schema["$defs"]
    silent = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part["properties"].items()
        if value and not value.get("description")
    ]
    assert silent == []


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["pcshrink", "recipes", "--schema"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code in (0, None)
    assert json.loads(capsys.readouterr().out)["title"] == "pcshrink recipe"
