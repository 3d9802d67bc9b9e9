"""What the methods are, for those who have to choose one."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from typing import Any

from pcshrink.common.tables import text_table
from pcshrink.config import MethodConfig
from pcshrink.methods.base import Method
from pcshrink.methods.registry import method_class, method_names

INDENT = "  "
WIDTH = 100
_ENTRY = re.compile(r"^(\w+): (.*)$")


def list_methods() -> list[dict[str, Any]]:
    """All methods in short."""
    return [_facts(name, method_class(name)) for name in method_names()]


def show_method(name: str) -> dict[str, Any]:
    """One method with its description and its settings.

    Raises:
        ConfigError: There is none of this name, with the nearest ones.
    """
    method = method_class(name)
    common = {field.name for field in dataclasses.fields(MethodConfig)}
    fields = sorted(dataclasses.fields(method.Config), key=lambda field: field.name in common)  # its own ones first
    meanings = meanings_of(method.Config)
    settings = [
        {"name": field.name, "default": _default(field), "meaning": meanings.get(field.name, "")}
        for field in fields
        if field.metadata.get("recipe", True)
    ]
    return _facts(name, method) | {"description": description_of(method), "settings": settings}


def _facts(name: str, method: type[Method[Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "summary": method.summary(),
        "kind": "static" if method.static else "dynamic",
        "unit": method.unit,
        "starts_from": method.starts_from,
        "needs": list(method.needs),
        "takes_budget": method.takes_budget(),
        "budget_by": method.budget_by,
        "reference": method.reference,
    }


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        value = field.default
    else:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    return list(value) if isinstance(value, tuple) else value


def description_of(documented: type[Any]) -> str:
    """A class's docstring without its list of attributes."""
    return _parts(documented)[0]


def meanings_of(documented: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say about each attribute."""
    meanings: dict[str, str] = {}
    for each in reversed(documented.__mro__[:-1]):
        meanings |= _entries(_parts(each)[1])
    return meanings


def _parts(documented: type[Any]) -> tuple[str, str]:
    """A docstring before and after ``Attributes:``; that of a base does not count."""
    text = inspect.cleandoc(documented.__dict__.get("__doc__") or "")
    before, _, after = text.partition("\nAttributes:\n")
    return before.strip(), after


def _entries(block: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent(block).splitlines():
        begins = _ENTRY.match(line)
        if begins is not None:
            name = begins[1]
            entries[name] = begins[2]
        elif name and line.startswith(" "):
            entries[name] += " " + line.strip()
        else:
            name = ""  # another section
    return entries


def _word(value: Any) -> str:
    """A value as a recipe has it."""
    return value if isinstance(value, str) else json.dumps(value)


def methods_text(methods: list[dict[str, Any]]) -> str:
    """All methods for people."""
    head = ["method", "kind", "mask unit", "starts from", "budget set by", "reference"]
    keys = ["name", "kind", "unit", "starts_from", "budget_by", "reference"]
    return text_table([[str(method[key]) or "-" for key in keys] for method in methods], "<", head=head)


def method_text(method: dict[str, Any]) -> str:
    """One method for people."""
    facts = {
        "kind": method["kind"], "mask unit": method["unit"], "starts from": method["starts_from"],
        "budget set by": method["budget_by"], "also needs": ", ".join(method["needs"]),
        "reference": method["reference"],
    }  # fmt: skip
    rows = [[f"{key}:", value] for key, value in facts.items() if value]
    lines = ["settings, as keys of a recipe's shrink section:"]
    for setting in method["settings"]:
        lines.append(f"{INDENT}{setting['name']} ({_word(setting['default'])})")
        lines += textwrap.wrap(setting["meaning"], WIDTH, initial_indent=2 * INDENT, subsequent_indent=2 * INDENT)
    return "\n\n".join([f"{method['name']}: {method['description']}", text_table(rows, "<"), "\n".join(lines)])
