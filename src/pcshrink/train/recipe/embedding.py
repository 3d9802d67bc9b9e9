"""Sections of a recipe that hold settings of a library class among their own keys."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import (
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pcshrink.train.recipe.section import Section, refuse_truth

T = TypeVar("T")
# Making one takes longer than everything else here, and every checkpoint holds the recipe.
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


class Embedding(Section):
    """A section that has settings of a library class among its own keys, side by side in the file.

    ``settings`` holds that class, so that each default stands in one place only.
    """

    @classmethod
    def settings_class(cls, data: Mapping[str, object]) -> type[Any]:
        """The library's class, which may depend on the section's other keys."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _take_settings(cls, data: object) -> Any:
        if not isinstance(data, Mapping) or "settings" in data:
            return data
        own = {key: value for key, value in data.items() if key in cls.model_fields}
        rest = {key: value for key, value in data.items() if key not in own}
        return own | {"settings": _build(cls.settings_class(data), rest, list(cls.model_fields))}

    @model_serializer(mode="wrap")
    def _flatten(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        plain.pop("settings")
        settings: Any = getattr(self, "settings")  # noqa: B009 - each section declares its own type
        dumped = _adapter(type(settings)).dump_python(settings, mode="json")
        return plain | {name: dumped[name] for name in offered(type(settings))}


def _adapter(config: type[T]) -> TypeAdapter[T]:
    if config not in _ADAPTERS:
        _ADAPTERS[config] = TypeAdapter(config)
    return _ADAPTERS[config]


def offered(config: type[Any]) -> list[str]:
    """The settings that a recipe may give; a run finds the others by itself."""
    return [f.name for f in dataclasses.fields(config) if f.metadata.get("recipe", True)]


def _build(config: type[T], values: Mapping[str, object], section: list[str]) -> T:
    """An object of a library class from plain data; every wrong key is named by its path."""
    known = offered(config)
    hints = typing.get_type_hints(config)
    wrong = []
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), [*known, *section], n=1)
            names = ", ".join(n for n in (*section, *known) if n != "settings")
            hint = f"did you mean {near[0]!r}?" if near else f"known are {names}"
            problem = PydanticCustomError("unknown_key", "unknown key; {hint}", {"hint": hint})
            wrong.append(InitErrorDetails(type=problem, loc=(str(key),), input=value))
            continue
        try:
            refuse_truth(value, hints[key])
        except ValueError as error:
            problem = PydanticCustomError("truth_value", "{text}", {"text": str(error)})
            wrong.append(InitErrorDetails(type=problem, loc=(str(key),), input=value))
    if wrong:
        raise ValidationError.from_exception_data(config.__name__, wrong)
    return _adapter(config).validate_python(dict(values))
