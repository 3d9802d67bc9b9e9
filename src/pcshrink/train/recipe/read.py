"""Find, read, override and check recipes; every mistake is named by its key."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pcshrink.errors import ConfigError
from pcshrink.methods.registry import import_method
from pcshrink.train.recipe.schema import Recipe
from pcshrink.train.recipe.yaml_text import parse_yaml, read_yaml_text

_MOST_PROBLEMS = 5


def recipe_names() -> list[str]:
    """The names of the built-in recipes."""
    folder = resources.files("pcshrink.train.recipe")
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def recipe_text(name: str) -> str:
    """The YAML text of a built-in recipe."""
    if name not in recipe_names():
        raise ConfigError(_no_such(name))
    return resources.files("pcshrink.train.recipe").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load_recipe(source: str | Path, overrides: Iterable[str] = (), *, trust: bool = False) -> Recipe:
    """Read a recipe from a YAML file or by the name of a built-in one.

    Args:
        source: Path of a YAML file, or a name that ``recipe_names`` lists.
        overrides: ``section.key=value`` texts; the value is read as YAML.
        trust: Import a method of the user's own (``package.module:Class``), which has settings of its own to check.

    Raises:
        ConfigError: There is no such recipe, or it says something that cannot be.

    Example:
        >>> load_recipe("digits", ["epochs.shrink=3"]).epochs.shrink
        3
    """
    if not isinstance(source, (str, os.PathLike)):
        message = f"a recipe is given by its name or file, got {source!r}"
        raise ConfigError(message)
    if isinstance(overrides, str) or not isinstance(overrides, Iterable):
        message = f"overrides must be a list such as ['epochs.shrink=3'], got {overrides!r}"
        raise ConfigError(message)
    path = Path(source)
    if str(source) in recipe_names():
        text, where = recipe_text(str(source)), f"recipe {source}"
    elif path.is_file():
        text, where = read_yaml_text(path), str(path)
    else:
        raise ConfigError(_no_such(str(source)))
    content = parse_yaml(text, where)
    if not isinstance(content, dict):
        return check_recipe(content, where)  # which says what is wrong
    for override in overrides:
        override_(content, override)
    shrink = content.get("shrink")
    if isinstance(shrink, dict) and isinstance(shrink.get("method"), str):
        import_method(shrink["method"], trust=trust)
    return check_recipe(content, where)


def check_recipe(content: Mapping[str, object], where: str = "recipe") -> Recipe:
    """Turn plain data into a recipe.

    Raises:
        ConfigError: With the path of each wrong key and a hint.
    """
    if not isinstance(content, Mapping):
        message = f"{where} must hold sections such as model, data and epochs; got {type(content).__name__}"
        raise ConfigError(message)
    try:
        return Recipe.model_validate(dict(content))
    except ValidationError as error:
        problems = [_explain(problem) for problem in error.errors()]
        more = f"; and {len(problems) - _MOST_PROBLEMS} more" if len(problems) > _MOST_PROBLEMS else ""
        message = f"{where}: {'; '.join(problems[:_MOST_PROBLEMS])}{more}"
        raise ConfigError(message) from error


def dump_recipe(recipe: Recipe) -> str:
    """The whole recipe, defaults included, as YAML text that ``load_recipe`` reads."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False)


def _no_such(name: str) -> str:
    near = difflib.get_close_matches(name, recipe_names(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"built in are {', '.join(recipe_names())}"
    kind = "file" if name.endswith((".yaml", ".yml")) or "/" in name else "recipe or file"
    return f"there is no {kind} {name!r}; {hint}"


def override_(content: dict[str, object], override: str) -> None:
    """Change one value of plain recipe data; ``section.key=value``, the value read as YAML.

    Raises:
        ConfigError: The text is no such thing, or the key leads nowhere.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        message = f"--set wants section.key=value, got {override!r}; for example --set epochs.shrink=10"
        raise ConfigError(message)
    value = parse_yaml(text, f"--set {key}: {text!r}")
    # YAML 1.1 reads 1e-4 as a text; everybody else reads a number.
    if isinstance(value, str) and _is_number(value):
        value = float(value)
    *sections, last = key.strip().split(".")
    target = content
    for section in sections:
        inner = target.setdefault(section, {})
        if inner is None:
            inner = target[section] = {}
        if not isinstance(inner, dict):
            message = f"--set {key}: {section!r} is a value, not a section"
            raise ConfigError(message)
        target = inner
    target[last] = value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _explain(problem: Any) -> str:
    """One problem as `path: what, got, hint`."""
    path = [str(part) for part in problem["loc"] if not _is_tag(part)]
    where = ".".join(path) or "recipe"
    if problem["type"] == "unknown_key":
        return f"{where}: {problem['msg']}"
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _fields_at(path[:-1])
        near = difflib.get_close_matches(path[-1], known, n=1)
        return f"{where}: unknown key; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}")
    if problem["type"] == "missing":
        return f"{where}: is missing and has no default"
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        setting = _SETTING.match(text)  # a library's class names itself; in a recipe it is the section
        return f"{where}.{setting[1]}: {setting[2]}" if setting else f"{where}: {text}"
    return f"{where}: {text[0].lower()}{text[1:]}; got {problem['input']!r}"


_SETTING = re.compile(r"\w+Config\.(\S+) (must .*)", re.DOTALL)


def _is_tag(part: object) -> bool:
    """Pydantic puts the alternative of a union it tried into the path; a reader has no use for it."""
    return isinstance(part, str) and (part.startswith(("constrained-", "literal[", "dict[", "function-")))


def _fields_at(path: list[str]) -> list[str]:
    inner: list[type[Any]] = [Recipe]
    for part in path:
        fields = inner[0].model_fields if issubclass(inner[0], BaseModel) else {}
        inner = _classes(fields[part].annotation) if part in fields else []
        if not inner:
            return []
    known = inner[0]
    return list(known.model_fields) if issubclass(known, BaseModel) else [f.name for f in dataclasses.fields(known)]


def _classes(annotation: object) -> list[type[Any]]:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return [annotation]
    return [c for argument in getattr(annotation, "__args__", ()) for c in _classes(argument)]
