"""The folder that a sweep's runs share: whose it is, who works in it, and which run lies where."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcshrink.artifact import load_weights
from pcshrink.common.files import write_text
from pcshrink.common.scratch import drop_leftovers
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.sweep.runs import Run, fingerprint, plain, read_fingerprint
from pcshrink.train.recipe.read import dump_recipe
from pcshrink.train.recipe.schema import Recipe

try:
    import fcntl
except ImportError:  # a system without them: nobody watches over the folder
    fcntl = None  # type: ignore[assignment]

RECORD = "sweep.json"
DENSE = "dense"  # the run that all others start from
LOCK = ".lock"


class SweepFolder:
    """A folder with one sub-folder for each run, all of one recipe and one dense start.

    Attributes:
        path: The folder.
        recipe: The recipe that all runs vary, with its alignment settled and the given weights in place.
        lock: An open file that says that somebody works here; children must keep it open.
        trust: Whether code of the user's own that the recipe names may run.
    """

    def __init__(self, path: Path, recipe: Recipe, lock: int, *, trust: bool = False) -> None:
        self.path, self.lock, self.trust = path, lock, trust
        self.recipe = self._settled(recipe)
        self._claim()
        marks = {file.parent: read_fingerprint(file.parent) for file in sorted(path.glob("*/recipe.yaml"))}
        self._places = {mark: folder for folder, mark in marks.items() if mark is not None}

    def _record(self) -> dict[str, Any]:
        file = self.path / RECORD
        if not file.is_file():
            return {}
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            message = f"{file} is damaged ({error}); choose another --out"
            raise CheckpointError(message) from error

    def _settled(self, recipe: Recipe) -> Recipe:
        """Replace ``align: auto`` by one number for all runs: the one these runs have, or what this machine likes."""
        if recipe.shrink is None or recipe.shrink.settings.align != "auto":
            return recipe
        align = ((self._record().get("recipe") or {}).get("shrink") or {}).get("align")
        if align is None:
            from pcshrink.measure.widths import auto_alignment

            budget = recipe.shrink.latency_budget
            align = auto_alignment(budget.runtime if budget else None)
        settings = dataclasses.replace(recipe.shrink.settings, align=align)
        return recipe.model_copy(update={"shrink": recipe.shrink.model_copy(update={"settings": settings})})

    def _claim(self) -> None:
        """Make the folder this recipe's, or see that it is."""
        recipe, weights = plain(self.recipe), _digest(self.recipe.model.weights)
        before = self._record()
        if not before:
            others = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
            if others:
                message = f"{self.path} holds other files ({', '.join(others[:3])}); choose another --out"
                raise ConfigError(message)
            write_text(self.path / RECORD, json.dumps({"recipe": recipe, "weights": weights}, indent=1))
            return
        there = before.get("recipe", {})
        changed = [key for key in recipe if recipe[key] != there.get(key)]
        changed += ["the dense weights"] if weights != before.get("weights") else []
        if changed:
            message = (
                f"the runs in {self.path} are of another recipe (different: {', '.join(changed)}); "
                "give the same recipe, weights and --set again, or choose another --out"
            )
            raise ConfigError(message)

    def place(self, run: Run) -> Path:
        """The folder of a run, made if there is none with its recipe yet.

        Raises:
            ConfigError: A run of another recipe has its name.
        """
        if run.recipe is None:
            message = f"run {run.name!r} has no recipe"
            raise ConfigError(message)
        mark = fingerprint(plain(run.recipe))
        if mark not in self._places:
            folder = self.path / run.name
            if (folder / "recipe.yaml").exists():
                message = f"{folder} holds a run of another recipe; choose another --out"
                raise ConfigError(message)
            write_text(folder / "recipe.yaml", dump_recipe(run.recipe))
            self._places[mark] = folder
        return self._places[mark]


def _digest(weights: Path | None) -> str | None:
    if weights is None:
        return None
    load_weights(weights)  # what cannot be read is refused here, once, and not by every run
    return hashlib.sha256(weights.read_bytes()).hexdigest()


@contextlib.contextmanager
def open_sweep(path: str | Path, recipe: Recipe, *, trust: bool = False) -> Iterator[SweepFolder]:
    """Work in a sweep's folder, alone; what a killed process left half written in it is removed.

    Raises:
        ConfigError: It holds other files or runs of another recipe, or somebody works in it.
        CheckpointError: The weights to start from cannot be read.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        message = f"{folder} is a file; --out wants a folder"
        raise ConfigError(message)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                message = f"another process works in {folder}, or a training that it began; wait for it, or end it"
                raise ConfigError(message) from error
        drop_leftovers(folder)
        yield SweepFolder(folder, recipe, lock, trust=trust)
    finally:
        os.close(lock)
