"""One call from a recipe to a result."""

from __future__ import annotations

import hashlib
import logging
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from pcshrink.data import DataConfig, ImageData, load_dataset
from pcshrink.data.source import derive_seed
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.train.checkpoint import Checkpoints, write_text
from pcshrink.train.console import Console
from pcshrink.train.finish import finish
from pcshrink.train.interrupt import stop_flag
from pcshrink.train.loggers import Logger
from pcshrink.train.loop import Loop
from pcshrink.train.objective import Objective
from pcshrink.train.observe import Observer
from pcshrink.train.recipe.read import check_recipe, dump_recipe
from pcshrink.train.recipe.schema import DataSection, Recipe
from pcshrink.train.result import Result
from pcshrink.train.session import PRECISIONS, Session

# What may change between two runs of the same recipe without changing its outcome.
_FREE = {"output", "description"}


def train(
    recipe: Recipe, out: str | Path, *, resume: bool = False, quiet: bool = False, loggers: Sequence[Logger] = ()
) -> Result:
    """Train, shrink, compact, prove, measure and save a network.

    Under ``torchrun`` every process calls this alike.

    Args:
        recipe: What to do.
        out: The folder for all files; it must be new, or hold the run to resume.
        resume: Go on from the newest checkpoint in ``out``, if there is one.
        quiet: Show nothing.
        loggers: Told of every epoch, beside those that the recipe names.

    Raises:
        ConfigError: The recipe cannot work; nothing was trained.
        CheckpointError: There is a run in ``out`` already, or its checkpoints are of no use.
        Interrupted: A signal came; a checkpoint was written.
    """
    began, folder = time.monotonic(), Path(out)
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    fabric = _fabric(recipe)
    recipe = _settle_alignment(recipe, folder if resume else None, fabric)
    state = _earlier_state(folder, recipe, resume=resume)
    data = open_data(recipe, fabric)
    if fabric.is_global_zero:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "recipe.yaml", dump_recipe(recipe))
    fabric.barrier()
    first = fabric.is_global_zero
    console, observer = Console(folder, quiet=quiet or not first), None
    try:
        with stop_flag() as flag:
            session = Session(recipe, data, fabric)
            observer = Observer(session, folder, loggers)
            torch.manual_seed(derive_seed(recipe.seed, fabric.global_rank, "training"))
            objective = Objective(recipe.train, recipe.distill, recipe.seed, fabric.autocast)
            loop = Loop(session, objective, folder, console, flag, observer)
            if state is not None:
                loop.load(state)
                console.say(f"going on at epoch {loop.epoch + 1}, step {loop.step}")
            else:
                console.rewind(0)
            loop.run()
        result = finish(session, loop.boundary, folder)
    finally:
        console.close()
        if observer is not None:
            observer.close()
    result.seconds = time.monotonic() - began
    if fabric.is_global_zero:
        result.save()
    return result


def _fabric(recipe: Recipe) -> Any:
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.ddp import DDPStrategy

    for name in ("lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")
    settings, world = recipe.train, int(os.environ.get("WORLD_SIZE", "1"))
    strategy: Any = DDPStrategy() if world > 1 else "auto"
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    try:
        fabric = Fabric(
            accelerator=settings.accelerator if settings.accelerator != "auto" else _accelerator(),
            devices=local, num_nodes=max(world // local, 1), strategy=strategy,
            precision=PRECISIONS[settings.precision],  # type: ignore[arg-type]
        )  # fmt: skip
    except (ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        message = f"train.accelerator {settings.accelerator} with train.precision {settings.precision}: {reason}"
        raise ConfigError(message) from error
    fabric.launch()
    return fabric


def _accelerator() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_data(recipe: Recipe, fabric: Any) -> ImageData:
    """The data of a recipe for this process."""
    return open_section(
        recipe.data, recipe.seed, recipe.train.channels_last,
        rank=fabric.global_rank, world_size=fabric.world_size, device=fabric.device,
    )  # fmt: skip


def open_section(section: DataSection, seed: int, channels_last: bool, **place: Any) -> ImageData:
    """A data set as a recipe's section describes it."""
    options = section.model_dump(exclude={"name", "root"})
    config = DataConfig(**options, seed=seed, channels_last=channels_last)
    return load_dataset(section.name, section.root, config, **place)


def _settle_alignment(recipe: Recipe, earlier: Path | None, fabric: Any) -> Recipe:
    """Replace ``align: auto`` by the number this machine likes, or by that of the run to resume."""
    if recipe.shrink is None or recipe.shrink.align != "auto":
        return recipe
    before = earlier / "recipe.yaml" if earlier is not None else None
    align: Any = None
    if before is not None and before.is_file():
        old = check_recipe(yaml.safe_load(before.read_text(encoding="utf-8")), str(before)).shrink
        align = old.align if old is not None else None
    elif fabric.is_global_zero:
        from pcshrink.measure.widths import measure_alignment

        budget = recipe.shrink.latency_budget
        align = measure_alignment(budget.runtime if budget else "onnxruntime", threads=1)
    align = fabric.broadcast(align)
    return recipe.model_copy(update={"shrink": recipe.shrink.model_copy(update={"align": align})})


def _earlier_state(folder: Path, recipe: Recipe, *, resume: bool) -> dict[str, Any] | None:
    checkpoints = Checkpoints(folder / "checkpoints")
    if not resume:
        if checkpoints.found():
            message = f"{folder} holds a run already; go on with --resume, or choose another --out"
            raise CheckpointError(message)
        return None
    state = checkpoints.load()
    if state is not None:
        _same_recipe(folder / "recipe.yaml", recipe)
    return state


def _same_recipe(path: Path, recipe: Recipe) -> None:
    """Refuse to resume with other settings: the outcome would be neither run's."""
    if not path.is_file():
        return
    before = check_recipe(yaml.safe_load(path.read_text(encoding="utf-8")), str(path))
    old, new = (r.model_dump(mode="json", exclude=_FREE) for r in (before, recipe))
    changed = [key for key in new if new[key] != old[key]]
    if changed:
        message = (
            f"the run in {path.parent} was started with another recipe (different: {', '.join(changed)}); "
            f"resume it with its own, {path}, or choose another --out"
        )
        raise ConfigError(message)


def weights_hash(model: torch.nn.Module) -> str:
    """A digest of all parameters and buffers, to compare two runs bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
