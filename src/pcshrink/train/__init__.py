"""The built-in trainer: from a recipe to a compact network. Nothing heavy is imported until it is used."""

from pcshrink.common.lazy import lazy_names

__all__ = ["Recipe", "Result", "load_recipe", "train"]

_HOMES = {"Recipe": "recipe.schema", "load_recipe": "recipe.read", "train": "run", "Result": "result"}

__getattr__ = lazy_names(__name__, _HOMES)
