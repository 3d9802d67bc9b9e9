"""What the methods are, for those who have to choose one."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import Any

from pcshrink.common.docstrings import description_of, meanings_of
from pcshrink.common.tables import text_table, wrapped
from pcshrink.config import MethodConfig
from pcshrink.methods.base import Method
from pcshrink.methods.registry import method_class, method_names

INDENT = "  "
WIDTH = 100
COLUMNS = (16, 7, 18, 18, 24, 27)  # widths in the list of all methods: 120 with the gaps


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


def _default(field: dataclasses.Field[object]) -> Any:
    if field.default is not dataclasses.MISSING:
        value = field.default
    else:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    return list(value) if isinstance(value, tuple) else value


def _word(value: object) -> str:
    """A value as a recipe has it."""
    return value if isinstance(value, str) else json.dumps(value)


def methods_text(methods: list[dict[str, object]]) -> str:
    """All methods for people."""
    head = ["method", "kind", "mask unit", "starts from", "budget set by", "reference"]
    keys = ["name", "kind", "unit", "starts_from", "budget_by", "reference"]
    rows = [[str(method[key]) or "-" for key in keys] for method in methods]
    return text_table(wrapped(rows, COLUMNS), "<", head=head)


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
