"""One call from a recipe to a result."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pcshrink.artifact import read
from pcshrink.artifact.store import finish_stopped_save
from pcshrink.common.allocator import keep_freed_memory
from pcshrink.common.files import write_text
from pcshrink.common.light_import import version_alone
from pcshrink.common.lock import sole_writer
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.common.scratch import drop_leftovers
from pcshrink.data import ImageData, load_dataset
from pcshrink.data.source import derive_seed
from pcshrink.errors import CheckpointError, ConfigError, ShrinkError
from pcshrink.models import usual_preprocessing
from pcshrink.train.answers import answered
from pcshrink.train.callbacks import Callback, Callbacks
from pcshrink.train.checkpoint import Checkpoints
from pcshrink.train.console import Console
from pcshrink.train.elastic import SECONDS_TO_LET_GO, began_here, meet_anew, note_launcher
from pcshrink.train.finish import finish
from pcshrink.train.interrupt import stop_flag
from pcshrink.train.loggers import Logger
from pcshrink.train.loop import Loop
from pcshrink.train.objective import Objective
from pcshrink.train.observe import Observer
from pcshrink.train.precision import check_alike, fabric_precision
from pcshrink.train.recipe.read import check_recipe, dump_recipe
from pcshrink.train.recipe.schema import DataSection, Recipe, ShrinkSection
from pcshrink.train.recipe.yaml_text import parse_yaml, read_yaml_text
from pcshrink.train.result import Result
from pcshrink.train.session import Session, build_model, place
from pcshrink.train.together import from_all, from_first, noticing_lost_peers, tells_of_peers, wait_together
from pcshrink.train.trust import import_code

# What may change between two runs of the same recipe without changing its outcome.
_FREE: Any = {"output": True, "description": True, "train": {"timeout"}}


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    trust: bool = False,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Logger] = (),
) -> Result:
    """Train, shrink, compact, prove, measure and save a network.

    Under ``torchrun`` every process calls this alike.

    Args:
        recipe: What to do.
        out: The folder for all files; it must be new, or hold the run to resume.
        resume: Go on from the newest checkpoint in ``out``, if there is one. What ``torchrun`` restarts does so anyway.
        quiet: Show nothing.
        trust: Run a network, data set, runtime or export format of the user's own (``package.module:callable``).
        callbacks: Told what happens, see ``pcshrink.train.callbacks``.
        loggers: Told of every epoch, beside those that the recipe names.

    Raises:
        ConfigError: The recipe cannot work; nothing was trained.
        CheckpointError: There is a run in ``out`` already, or none of its checkpoints can be read.
        Interrupted: A signal came; a checkpoint was written.
        PeerError: Another process is gone or does not answer; the last checkpoint is there.
    """
    began, folder = time.monotonic(), _checked(recipe, out, callbacks, loggers)
    import_code(recipe, trust=trust)
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    keep_freed_memory()
    world, patience = int(os.environ.get("WORLD_SIZE", "1")), recipe.train.timeout
    with noticing_lost_peers(world, patience):
        meet_anew(patience)
        fabric = _fabric(recipe)
    with noticing_lost_peers(world, patience), _held(folder, fabric):
        result = _train(recipe, folder, fabric, Callbacks(callbacks), loggers, resume=resume, quiet=quiet)
        result.seconds = time.monotonic() - began
        if fabric.is_global_zero:
            result.save()
    return result


def _checked(recipe: object, out: object, callbacks: Sequence[object], loggers: Sequence[object]) -> Path:
    """The folder, if everything is what it should be."""
    if not isinstance(recipe, Recipe):
        message = f"train takes a Recipe, which load_recipe(name or file) gives; got {type(recipe).__name__}"
        raise ConfigError(message)
    for kind, things in ((Callback, callbacks), (Logger, loggers)):
        wrong = [thing for thing in things if not isinstance(thing, kind)]
        if wrong:
            message = f"each of {kind.__name__.lower()}s must be a {kind.__name__}, got {wrong[0]!r}"
            raise ConfigError(message)
    if not isinstance(out, (str, os.PathLike)) or not str(out):
        message = f"out must be the path of a folder, got {out!r}"
        raise ConfigError(message)
    return Path(out)


@contextlib.contextmanager
def _held(folder: Path, fabric: Any) -> Iterator[None]:
    """The first process holds the folder for all, and removes first what a run that was killed here left half written.

    That are hidden folders beside checkpoints, history, exports and all other files, see ``drop_leftovers``, and files
    of a half saved network. Nobody else's: the run is alone here, and what another command writes at this moment is
    locked.
    """
    if not fabric.is_global_zero:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {folder} cannot be made: {error}; choose another --out"
        raise CheckpointError(message) from error
    with sole_writer(folder, patience=SECONDS_TO_LET_GO if began_here(folder) else 0.0):
        drop_leftovers(folder)
        finish_stopped_save(folder / "model")
        yield


def _train(
    recipe: Recipe,
    folder: Path,
    fabric: Any,
    callbacks: Callbacks,
    loggers: Sequence[Logger],
    *,
    resume: bool,
    quiet: bool,
) -> Result:
    first = fabric.is_global_zero
    resume = resume or (first and began_here(folder))  # only the first process reads what is there
    recipe = _settle_alignment(recipe, folder if resume else None, fabric)
    console, observer = Console(folder, quiet=quiet or not first), None
    try:
        state = from_first(fabric, lambda: _earlier_state(folder, recipe, console, resume=resume))
        data = open_data(recipe, fabric)
        for note in data.notes:
            console.say(f"note: {note}")
        from_first(fabric, lambda: _note_start(folder, recipe))
        data = answered(data, folder, fabric, lambda: place(build_model(recipe, data.num_classes)[0], recipe, fabric))
        session = Session(recipe, data, fabric, callbacks)
        observer = Observer(session, folder, loggers)
        torch.manual_seed(derive_seed(recipe.seed, fabric.global_rank, "training"))
        objective = Objective(recipe.train, recipe.distill, recipe.seed, fabric.autocast)
        loop = Loop(session, objective, folder, console, observer)
        if state is not None:
            with _as_a_checkpoint(folder):
                loop.load(state)
            console.say(f"going on at epoch {loop.epoch + 1}, step {loop.step}")
        else:
            console.rewind(0)
        loop.begin()
        with stop_flag() as flag:  # before and after it there is nothing to lose
            loop.run(flag)
        result = finish(session, loop.phases, folder)
        if objective.notes is not None:
            objective.notes.discard()
        return result
    finally:
        console.close()
        if observer is not None:
            observer.close()


def _fabric(recipe: Recipe) -> Any:
    with version_alone("torchmetrics"):
        from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning_fabric\..*")
    settings, world = recipe.train, int(os.environ.get("WORLD_SIZE", "1"))
    patience = datetime.timedelta(minutes=settings.timeout)
    strategy: Any = DDPStrategy(timeout=patience) if world > 1 else "auto"
    # What torchrun sets in the environment of each process; other launchers can set the same.
    plugins: Any = [TorchElasticEnvironment()] if world > 1 else None
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    accelerator = settings.accelerator if settings.accelerator != "auto" else _accelerator()
    precision: Any = fabric_precision(settings.precision, accelerator)
    try:
        fabric = Fabric(
            accelerator=accelerator, devices=local, num_nodes=max(world // local, 1), strategy=strategy,
            plugins=plugins, precision=precision,
        )  # fmt: skip
    except (ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        message = f"train.accelerator {settings.accelerator} with train.precision {settings.precision}: {reason}"
        raise ConfigError(message) from error
    fabric.launch()
    if world > 1:
        wait_together(settings.timeout)
        check_alike(from_all(precision))
    return fabric


def _accelerator() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_data(recipe: Recipe, fabric: Any) -> ImageData:
    """The data of a recipe for this process."""
    views = recipe.distill.cache if recipe.distill is not None else 0
    return open_section(
        recipe.data, recipe.seed, recipe.train.channels_last, views, preprocessing=_preprocessing(recipe),
        rank=fabric.global_rank, world_size=fabric.world_size, device=fabric.device,
    )  # fmt: skip


def _preprocessing(recipe: Recipe) -> Preprocessing:
    """What the recipe's network is used to see: as it was saved, or as its authors say."""
    start = recipe.model.start
    saved = read(start).preprocessing if start is not None else None
    return saved or usual_preprocessing(recipe.model.name, recipe.model.args)


def open_section(section: DataSection, seed: int, channels_last: bool, views: int = 0, **place: Any) -> ImageData:
    """A data set as a recipe's section describes it."""
    config = dataclasses.replace(section.settings, seed=seed, channels_last=channels_last, views=views)
    return load_dataset(section.name, section.root, config, **place)


def _settle_alignment(recipe: Recipe, earlier: Path | None, fabric: object) -> Recipe:
    """Replace ``align: auto`` by the number this machine likes, or by that of the run to resume."""
    if recipe.shrink is None or recipe.shrink.settings.align != "auto":
        return recipe
    shrink = recipe.shrink
    settings = dataclasses.replace(shrink.settings, align=from_first(fabric, lambda: _alignment(shrink, earlier)))
    return recipe.model_copy(update={"shrink": shrink.model_copy(update={"settings": settings})})


def _alignment(shrink: ShrinkSection, earlier: Path | None) -> int | Mapping[str, int]:
    before = earlier / "recipe.yaml" if earlier is not None else None
    if before is not None and before.is_file():
        old = check_recipe(parse_yaml(read_yaml_text(before), str(before)), str(before)).shrink
        if old is not None and old.settings.align != "auto":
            return old.settings.align
    from pcshrink.measure.widths import auto_alignment

    return auto_alignment(shrink.latency_budget.runtime if shrink.latency_budget else None)


def _earlier_state(folder: Path, recipe: Recipe, console: Console, *, resume: bool) -> dict[str, Any] | None:
    checkpoints = Checkpoints(folder / "checkpoints")
    if not resume:
        if checkpoints.written():
            message = f"{folder} holds a run already; go on with --resume, or choose another --out"
            raise CheckpointError(message)
        _refuse_to_replace(folder)
        return None
    state = checkpoints.load(console.say)
    if state is None:
        _refuse_to_replace(folder)
    if state is not None:
        with _as_a_checkpoint(folder):
            before = check_recipe(state["recipe"], f"the checkpoint in {folder}")
        _same_recipe(folder, before, recipe)
    return state


def _refuse_to_replace(folder: Path) -> None:
    """A network whose checkpoints were removed is somebody's result all the same."""
    there = next((p for p in (folder / "model" / "pcshrink.json", folder / "pcshrink.json") if p.exists()), None)
    if there is not None:
        message = f"{there.parent} holds a network that a new run would replace; choose another --out"
        raise CheckpointError(message)


@contextlib.contextmanager
def _as_a_checkpoint(folder: Path) -> Iterator[None]:
    """A checkpoint may be whole, with a right hash, and still lack what belongs into it: no fault of the program."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ShrinkError) or tells_of_peers(error):
            raise
        message = (
            f"the newest checkpoint in {folder / 'checkpoints'} does not fit this run ({type(error).__name__}: "
            f"{str(error)[:200]}); remove it to go on from the one before"
        )
        raise CheckpointError(message) from error


def _note_start(folder: Path, recipe: Recipe) -> None:
    write_text(folder / "recipe.yaml", dump_recipe(recipe))
    note_launcher(folder)


def _same_recipe(folder: Path, before: Recipe, recipe: Recipe) -> None:
    """Refuse to resume with other settings: the outcome would be neither run's."""
    old, new = (r.model_dump(mode="json", exclude=_FREE) for r in (before, recipe))
    # As texts, since of patterns the first that matches holds: their order counts.
    changed = [key for key in new if json.dumps(new[key]) != json.dumps(old[key])]
    if changed:
        if not (folder / "recipe.yaml").exists():  # the checkpoint holds it as well
            write_text(folder / "recipe.yaml", dump_recipe(before))
        message = (
            f"the run in {folder} was started with another recipe (different: {', '.join(changed)}); "
            f"resume it with its own, {folder / 'recipe.yaml'}, or choose another --out"
        )
        raise ConfigError(message)
