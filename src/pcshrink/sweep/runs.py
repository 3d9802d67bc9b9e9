"""One training of many, and what became of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pcshrink.train.recipe.schema import Recipe

FREE = {"output", "description"}  # what may differ without making another run


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        name: Its own, and that of its folder if no other run has the same recipe.
        recipe: What to train; None where that cannot be said.
        refused: Why it cannot even be tried.
    """

    name: str
    recipe: Recipe | None = None
    refused: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        folder: Where its files are; None if it was refused.
        result: Its ``result.json``; None if there is none.
        reason: Why there is none.
        latency_share: What its network takes of the dense one's time, if that was measured.
    """

    folder: Path | None
    result: dict[str, Any] | None = None
    reason: str = ""
    latency_share: float | None = None


def plain(recipe: Recipe) -> dict[str, Any]:
    """What makes a recipe the recipe it is, as plain data; where its weights lie does not count."""
    return _essence(recipe.model_dump(mode="json"))


def _essence(content: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in content.items() if key not in FREE}
    return kept | {"model": {key: value for key, value in kept["model"].items() if key != "weights"}}


def fingerprint(content: dict[str, object]) -> str:
    """The same for two recipes that train the same, given as ``plain`` gives them."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_fingerprint(folder: Path) -> str | None:
    """That of a run's recipe, taken as it is written: it may be of a method that this process does not know."""
    try:
        return fingerprint(_essence(yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        return None


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None while it is not finished."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and "error" in result.get("compact", {}) else None
