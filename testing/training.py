"""A recipe that trains in a second, for the tests of the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.recipe.schema import Recipe

TINY: dict[str, Any] = {
    "model": {"name": "digitsnet", "args": {"widths": [8, 8, 16]}},
    "data": {"name": "digits", "batch_size": 128},
    "epochs": {"dense": 1, "warmup": 1, "shrink": 3, "settle": 2},
    "optimizer": {"lr": 0.1},
    "shrink": {"budget": {"madds": 0.5}, "gates": "fold", "compact_every": 1, "strength": 4.0},
    "distill": {"teacher": "dense", "loss": "soft"},
    "output": {"latency": False, "checkpoint_steps": 4},
}


def tiny(**changes: Any) -> Recipe:
    """The tiny recipe; a section given as a dict is merged, anything else replaces it."""
    content = {k: dict(v) for k, v in TINY.items()}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            content[section][name] = value
        elif value is None:
            content.pop(section)
        else:
            content[section] = value
    return check_recipe(content)


def model_bytes(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()
