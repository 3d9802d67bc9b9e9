"""The one dense network that all runs of a sweep start from."""

from __future__ import annotations

from pathlib import Path

from pcshrink.errors import ConfigError
from pcshrink.sweep.folder import DENSE, SweepFolder
from pcshrink.sweep.runner import Say, run_all
from pcshrink.sweep.runs import Run
from pcshrink.sweep.vary import dense_only, starting_from
from pcshrink.train.interrupt import Interrupted
from pcshrink.train.recipe.schema import Recipe


def given_weights(recipe: Recipe, weights: str | Path | None) -> Recipe:
    """The recipe, starting from weights that a user brings, if there are any."""
    return recipe if weights is None else starting_from(recipe, Path(weights).resolve())


def common_start(sweep: SweepFolder) -> Recipe:
    """The recipe that all runs vary; its weights need not be there yet, and latency is measured after all runs."""
    recipe = sweep.recipe
    if recipe.epochs.dense:
        place = sweep.place(Run(DENSE, dense_only(recipe)))
        recipe = starting_from(recipe, (place / "model" / "model.safetensors").resolve())
    return recipe.model_copy(update={"output": recipe.output.model_copy(update={"latency": False})})


def train_start(sweep: SweepFolder, say: Say | None = None) -> None:
    """Train the dense network, where the recipe asks for one and it is not there yet.

    Raises:
        ConfigError: It failed, so nothing else can begin.
        Interrupted: A signal came; a checkpoint was written.
    """
    if not sweep.recipe.epochs.dense:
        return
    (outcome,), stopped = run_all(sweep, [Run(DENSE, dense_only(sweep.recipe))], say=say)
    if stopped:
        message = "stopped while the dense network was trained; the same command goes on"
        raise Interrupted(message, stopped)
    if outcome.result is None:
        message = f"the dense network that all runs start from could not be trained: {outcome.reason}"
        raise ConfigError(message)
