"""The JSON Schema of recipes, made from the classes that check them, so that editors complete and check too."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from pcshrink.budget.config import METRICS, BudgetConfig
from pcshrink.common.docstrings import description_of, meanings_of
from pcshrink.methods.registry import method_class, method_names
from pcshrink.train.recipe import schema
from pcshrink.train.recipe.embedding import offered
from pcshrink.train.recipe.output import OutputSection
from pcshrink.train.recipe.section import Section

FILE = "recipe.schema.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SECTIONS: tuple[type[Section], ...] = (
    schema.ModelSection, schema.DataSection, schema.EpochsSection, schema.OptimizerSection, schema.TrainSection,
    schema.ShrinkSection, schema.DistillSection, OutputSection,
)  # fmt: skip


class _Generator(GenerateJsonSchema):
    """Pydantic's own, but the settings of a library class are filled in afterwards."""

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> JsonSchemaValue:
        return {}


def recipe_schema() -> dict[str, Any]:
    """What a recipe may say, as JSON Schema."""
    made = schema.Recipe.model_json_schema(mode="validation", schema_generator=_Generator)
    parts = made["$defs"]
    for documented in (*SECTIONS, BudgetConfig):
        part = parts[documented.__name__]
        part["description"] = description_of(documented)
        _describe_(part["properties"], meanings_of(documented))
    parts["BudgetConfig"]["oneOf"] = [{"required": [name]} for name in (*METRICS, "latency")]
    _embed_(parts["DataSection"], _settings(schema.DataSection.settings_class({})))
    _embed_methods_(parts["ShrinkSection"])
    described = {documented.__name__ for documented in (*SECTIONS, BudgetConfig)}
    made["$defs"] = {name: part for name, part in parts.items() if name in described}
    return {"$schema": DRAFT} | made | {"title": "pcshrink recipe"}


def schema_text() -> str:
    """The schema as the text that is shipped."""
    return json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n"


def shipped_schema() -> str:
    """The schema file that lies beside the built-in recipes."""
    return resources.files("pcshrink.train.recipe").joinpath(FILE).read_text(encoding="utf-8")


def _settings(config: type[Any]) -> dict[str, Any]:
    """The settings of a library class that a recipe may give, each with its meaning."""
    made = TypeAdapter(config).json_schema(mode="validation")
    properties = {name: made["properties"][name] for name in offered(config)}
    _describe_(properties, meanings_of(config))
    return properties


def _embed_(part: dict[str, Any], settings: dict[str, Any]) -> None:
    """Put settings beside a section's own keys, as the file has them."""
    part["properties"].pop("settings")
    part["required"] = [name for name in part.get("required", []) if name != "settings"]
    part["properties"] |= settings
    if not part["required"]:
        del part["required"]


def _embed_methods_(part: dict[str, Any]) -> None:
    """The keys of all methods; those of one method are allowed where it is chosen."""
    own = {name: _settings(method_class(name).Config) for name in method_names()}
    every: dict[str, list[Any]] = {}
    for settings in own.values():
        for key, value in settings.items():
            if value not in every.setdefault(key, []):
                every[key].append(value)
    _embed_(part, {key: forms[0] if len(forms) == 1 else {} for key, forms in every.items()})
    part["properties"]["method"]["anyOf"] = [{"enum": method_names()}, {"pattern": ":"}]  # or package.module:callable
    # A method of the user's own has settings that are not known here, so other keys are wrong only without one.
    del part["additionalProperties"]
    known = {"if": {"properties": {"method": {"enum": method_names()}}}}
    keys = {"then": {"propertyNames": {"enum": list(part["properties"])}}}
    part["allOf"] = [known | keys, *(_only(name, settings, every) for name, settings in own.items())]


def _only(name: str, settings: dict[str, object], every: dict[str, list[object]]) -> dict[str, Any]:
    """Where a method is chosen, the keys of other methods are wrong, and a shared key has this method's meaning."""
    chosen: dict[str, Any] = {"properties": {"method": {"const": name}}}
    if name != schema.ShrinkSection.model_fields["method"].default:
        chosen["required"] = ["method"]
    keys: dict[str, Any] = {key: settings.get(key, False) for key in every}
    telling = {key: value for key, value in keys.items() if value is False or len(every[key]) > 1}
    return {"if": chosen, "then": {"properties": telling}}


def _describe_(properties: dict[str, Any], meanings: dict[str, str]) -> None:
    for name, part in properties.items():
        part.pop("title", None)
        if name in meanings:
            part["description"] = meanings[name]
