"""From a request to a recipe: look at network and images, refuse what cannot work, choose the rest."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pcshrink.data.folder_scan import FolderFiles, ImageFiles, scan_folder, scan_parts
from pcshrink.data.unlabelled import has_class_folders, scan_unlabelled
from pcshrink.errors import DataError
from pcshrink.methods.base import Method
from pcshrink.methods.registry import method_class
from pcshrink.pretrained.network import Network, check_model, open_network
from pcshrink.pretrained.request import Goal, Request
from pcshrink.pretrained.schedule import Schedule, measure_speed, plan_schedule
from pcshrink.runtime.run import use_threads
from pcshrink.train.recipe.read import check_recipe, override_
from pcshrink.train.recipe.schema import Recipe

METHOD = "surgeon"
LR = 1e-4
LEAST_CROP = 0.35  # smaller ones show objects so large that the norms are wrong for whole images
EVAL_BATCH = 50
TIMED_BATCH = 8
FEW = 200  # held-out images below which a point of accuracy is hardly seen


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the training.

    Attributes:
        recipe: What will be run.
        schedule: How long it will take.
        network: What is to shrink.
        held_out: The files that are held out.
        labelled: Whether the images have labels.
        images: How many there are to train on.
    """

    recipe: Recipe
    schedule: Schedule
    network: Network
    held_out: tuple[str, ...]
    labelled: bool
    images: int

    def text(self) -> str:
        """The plan in a few lines."""
        epochs, held, batch = self.schedule.epochs, len(self.held_out), self.recipe.data.settings.batch_size
        measure = "the error on their labels" if self.labelled else "agreement with the dense network"
        lines = [
            f"network: {self.recipe.model.name}, {self.network.outputs} classes, {self.network.size} pixels",
            f"images: {self.images} to train on, {held} held out; measured by {measure}",
            f"schedule: {epochs.warmup} + {epochs.shrink} + {epochs.settle} epochs (warm-up, choosing, settling), "
            f"batches of {batch}, about {duration(self.schedule.seconds)} on this machine",
        ]
        if epochs.total < self.schedule.wanted:
            lines.append(f"note: {self.schedule.wanted} epochs would be better than {epochs.total}")
        if self.images < self.network.outputs:
            lines.append(
                f"note: fewer images to train on ({self.images}) than classes ({self.network.outputs}): some classes "
                "are never seen, and nothing keeps the network good at them"
            )
        if held < FEW:
            lines.append(f"note: {held} held-out images cannot show small differences; more images tell more")
        return "\n".join(lines)


def duration(seconds: float) -> str:
    """A time in words."""
    return f"{seconds / 3600:.1f} hours" if seconds >= 5400 else f"{max(round(seconds / 60), 1)} minutes"


def prepare(request: Request, goal: Goal, parts: int = 1) -> Prepared:
    """Choose a recipe.

    Args:
        request: What is asked for.
        goal: A cost to meet.
        parts: How many runs share the time.

    Raises:
        ConfigError: The network or the time limit cannot work.
        CheckpointError: The weights cannot be read, or do not fit.
        DataError: The images do not fit the network.
    """
    labelled = has_class_folders(request.images) if request.labels is None else request.labels
    asked = _asked(request)
    method = method_class(str(asked["shrink"]["method"]))
    check_model(request)
    _look_at(request, labelled)
    network = open_network(request)
    if isinstance(asked["data"].get("image_size"), int):
        network = dataclasses.replace(network, size=asked["data"]["image_size"])
    files = _files(request, labelled, network.outputs)
    train, val = files.train, files.val
    with use_threads(request.threads):
        speed = measure_speed(network.model, network.example(TIMED_BATCH))
    hours = None if request.hours is None else request.hours / parts
    schedule = plan_schedule(len(train.paths), len(val.paths), speed, hours, method.pushing)
    content = _content(request, goal, network, schedule, method, labelled=labelled)
    for setting in request.settings:
        override_(content, setting)
    recipe = check_recipe(content, "the recipe of pcshrink shrink")
    schedule = dataclasses.replace(schedule, epochs=recipe.epochs)
    return Prepared(recipe, schedule, network, val.paths, labelled, len(train.paths))


def _look_at(request: Request, labelled: bool) -> None:
    """Refuse a folder without images before weights are fetched from far away."""
    if labelled:
        scan_parts(request.images)
    else:
        scan_unlabelled(request.images, seed=request.seed)


def _files(request: Request, labelled: bool, outputs: int) -> FolderFiles:
    if not labelled:
        return scan_unlabelled(request.images, seed=request.seed)
    _check_classes(scan_parts(request.images)[0], outputs)
    return scan_folder(request.images, seed=request.seed)


def _check_classes(files: ImageFiles, outputs: int) -> None:
    """Refuse labels that cannot be those of the network."""
    count, hint = len(files.classes), "; with --no-labels the network itself labels the images"
    if count == 1:
        message = f"all images are of one class, {files.classes[0]!r}, which tells nothing about the others{hint}"
        raise DataError(message)
    if count != outputs:
        message = f"the images have {count} classes and the network {outputs}{hint}"
        raise DataError(message)


def _asked(request: Request) -> dict[str, Any]:
    """The settings of the user's own that decide about others."""
    content: dict[str, Any] = {"shrink": {"method": METHOD}, "data": {}}
    for setting in request.settings:
        override_(content, setting)
    return content


def _content(
    request: Request, goal: Goal, network: Network, schedule: Schedule, method: type[Method[Any]], *, labelled: bool
) -> dict[str, Any]:
    budget: dict[str, Any] = {goal.kind: goal.amount}
    if goal.kind == "latency":
        budget["threads"] = request.threads
    return {
        "description": f"{request.model} to {goal.amount:g} of its {goal.kind}",
        "seed": request.seed,
        "model": network.section,
        "data": {
            "name": "folder" if labelled else "unlabelled", "root": str(request.images.resolve()),
            "split_seed": request.seed, "batch_size": schedule.batch, "eval_batch_size": EVAL_BATCH,
            "least_crop": LEAST_CROP, **network.inputs,
        },
        "epochs": schedule.epochs.model_dump(),
        "optimizer": {"name": "adamw", "lr": LR, "weight_decay": 1e-5} if method.watches
        else {"lr": 0.002, "weight_decay": 1e-5},
        "train": {"threads": request.threads, "channels_last": True},
        "shrink": {
            "method": method.Config.method, "budget": budget, "gates": "fold", "compact_every": 1, "align": 8,
            **method.for_pretrained(),
        },
        # Few images say little by their labels and much by all scores of a network that has seen millions.
        "distill": {"teacher": "dense", "loss": "soft", "weight": 0.7 if labelled else 1.0},
        "output": {"onnx": True},
    }  # fmt: skip
