"""A recipe that trains in a second, and runs that are stopped on the way, for the tests of the trainer."""

from __future__ import annotations

import os
import shutil
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
    "epochs": {"dense": 1, "warmup": 1, "shrink": 3, "settle": 1},
    "optimizer": {"lr": 0.1},
    "shrink": {"budget": {"madds": 0.5}, "gates": "fold", "compact_every": 1},
    "distill": {"teacher": "dense", "loss": "soft"},
    "output": {"latency": False},
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


class CopyAt(Callback):
    """Keeps what is on the disk if the run is stopped just before a step."""

    def __init__(self, step: int, folder: Path) -> None:
        self.step, self.folder = step, folder

    def before_step(self, loop: Loop) -> None:
        """Copy the whole folder."""
        if loop.step == self.step:
            loop.save()
            shutil.copytree(loop.checkpoints.folder.parent, self.folder)


def train_with_stops(recipe: Recipe, folder: Path, *steps: int) -> Result:
    """A run that is stopped after each of these steps and resumed; a folder that is there holds its beginning."""
    begun = folder.exists()
    for step in steps:
        with pytest.raises(Interrupted, match=f"step {step}; a checkpoint is written") as caught:
            train(recipe, folder, resume=begun, quiet=True, callbacks=[StopAfterStep(step)])
        assert caught.value.code == 128 + signal.SIGTERM
        begun = True
    return train(recipe, folder, resume=begun, quiet=True)
