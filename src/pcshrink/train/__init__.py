"""The built-in trainer: from a recipe to a compact network. Nothing heavy is imported until it is used."""

from typing import Any

__all__ = ["Recipe", "Result", "load_recipe", "train"]

_HOMES = {"Recipe": "recipe.schema", "load_recipe": "recipe.read", "train": "run", "Result": "result"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
