"""A recipe that trains in a second, and runs that are stopped on the way, for the tests of the trainer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pcshrink.train.callbacks import Callback
from pcshrink.train.interrupt import Interrupted
from pcshrink.train.loop import Loop
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.recipe.schema import Recipe
from pcshrink.train.result import Result
from pcshrink.train.run import train

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


class StopAfterStep(Callback):
    """Lets a signal arrive during the given step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, loop: Loop) -> None:
        """Send it."""
        if loop.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def train_with_stops(recipe: Recipe, folder: Path, *steps: int) -> Result:
    """A run that is stopped after each of these steps and resumed."""
    for number, step in enumerate(steps):
        with pytest.raises(Interrupted, match=f"step {step}; a checkpoint is written"):
            train(recipe, folder, resume=number > 0, quiet=True, callbacks=[StopAfterStep(step)])
    return train(recipe, folder, resume=bool(steps), quiet=True)
