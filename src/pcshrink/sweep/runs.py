"""One training of many, and what became of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """

    folder: Path | None
    result: dict[str, Any] | None = None
    reason: str = ""


def plain(recipe: Recipe) -> dict[str, Any]:
    """What makes a recipe the recipe it is, as plain data."""
    return recipe.model_dump(mode="json", exclude=FREE)


def fingerprint(recipe: Recipe) -> str:
    """The same for two recipes that train the same; where the weights lie does not count, the folder sees to them."""
    content = plain(recipe)
    content["model"] = {key: value for key, value in content["model"].items() if key != "weights"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None while it is not finished."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and "error" in result.get("compact", {}) else None
