"""Everything that a run trains and carries along: model, gates, optimizer, average, and the cuts made so far."""

from __future__ import annotations

import copy
import gc
import itertools
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.artifact import load, read
from pcshrink.config import MethodConfig, RunFacts
from pcshrink.data import ImageData
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.methods.prepared import mark_of, rebuild
from pcshrink.models import create
from pcshrink.proof.compact import compact
from pcshrink.shrinker import Shrinker, attach_
from pcshrink.surgery.cut import apply_plan, compose
from pcshrink.surgery.fold import fold, fold_gates_
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.memory import cut_state, optimizer_state, set_optimizer_state
from pcshrink.surgery.plan import PrunePlan
from pcshrink.train.average import Average
from pcshrink.train.callbacks import Callback
from pcshrink.train.evaluate import check_fit
from pcshrink.train.optim import make_optimizer
from pcshrink.train.recipe.schema import Recipe, ShrinkSection
from pcshrink.train.sync_norm import synchronise_, unsynchronise_
from pcshrink.train.weights import load_weights_

RECALIBRATED_ON = 2048  # images


class Session:
    """The changing things of one run.

    Attributes:
        model: The network itself, without any wrapper.
        wrapped: What the forward pass of training goes through.
        shrinker: Drives the gates; None before they are attached and after they are folded.
        average: The average of the weights; None if it is off.
        cut: All cuts so far as one plan for the original model.
        mask: The plan whose dead channels are masked, where they are not cut out.
        stage: ``dense``, ``gated`` or ``folded``.
    """

    def __init__(self, recipe: Recipe, data: ImageData, fabric: Any, callbacks: Callback | None = None) -> None:
        self.recipe, self.data, self.fabric = recipe, data, fabric
        self.callbacks = callbacks or Callback()
        self.dtype = dtype_of(recipe)
        example = torch.randn(2, *data.input_shape, generator=torch.Generator().manual_seed(1))
        self.example = example.to(fabric.device, self.dtype)
        model, self.cut = build_model(recipe, data.num_classes)
        self._prepared = mark_of(model)
        self.model = self.place(model)
        check_fit(self.model, data)
        self.wrapped: Any = None
        self.optimizer: torch.optim.Optimizer
        self.stepper: Any = None
        self.shrinker: Shrinker | None = None
        self.average: Average | None = None
        self.mask: PrunePlan | None = None
        self.stage = "dense"

    def place(self, model: nn.Module) -> nn.Module:
        """Bring a model to where and how this run computes."""
        return place(model, self.recipe, self.fabric)

    @property
    def best(self) -> nn.Module:
        """The model to evaluate and save: the average if there is one, its gates switched as the model's are."""
        average = self._average_as_switched()
        return self.model if average is None else average.model

    def _average_as_switched(self) -> Average | None:
        """The average; methods switch the gates of the model only, so those of the average are brought up to date."""
        if self.average is not None:
            self.average.follow_switches(self.model)
        return self.average

    @property
    def gated(self) -> Shrinker:
        """The shrinker, for what can only be asked while gates are on."""
        if self.shrinker is None:
            message = "there are no gates on the model"
            raise RuntimeError(message)
        return self.shrinker

    @property
    def settings(self) -> ShrinkSection:
        """The recipe's shrink section, for what can only be asked where there is one."""
        if self.recipe.shrink is None:
            message = "the recipe has no shrink section"
            raise RuntimeError(message)
        return self.recipe.shrink

    def prepare(self, memory: dict[str, Any] | None = None) -> None:
        """Make the optimizer and the wrappers for the model as it is now.

        Args:
            memory: What the optimizer remembers, by parameter name.
        """
        self.wrapped = self.stepper = None
        if self.fabric.world_size > 1:
            gc.collect()  # a wrapper for several processes lets go of its hooks only when it is gone
        unsynchronise_(self.model)
        if self.fabric.world_size > 1 and self.recipe.train.sync_norm:
            synchronise_(self.model)
        self.optimizer = make_optimizer(self.model, self.recipe.optimizer, self.fabric.device)
        if memory:
            set_optimizer_state(self.model, self.optimizer, memory)
        compiled = torch.compile(self.model) if self.recipe.train.compile else self.model
        self.wrapped = self.fabric.setup_module(compiled)
        self.stepper = self.fabric.setup_optimizers(self.optimizer)
        if self.recipe.train.ema and self.average is None:
            self.average = Average(self.model, self.recipe.train.ema)
        self.model.train()

    def recalibrate(self, epoch: int) -> None:
        """Before an evaluation: give the average's norms the statistics of some training images of this epoch."""
        average = self._average_as_switched()
        if average is None:
            return
        count = -(-RECALIBRATED_ON // self.recipe.data.settings.batch_size)
        batches = itertools.islice(self.data.train.batches(epoch), count)
        with self.fabric.autocast():
            average.recalibrate(images.to(self.dtype) for images, _ in batches)

    def restart(self) -> None:
        """The model has other weights: forget what optimizer and average know of those before."""
        self.average = None
        self.prepare()

    def memory(self) -> dict[str, Any]:
        """What the optimizer remembers, by parameter name."""
        return optimizer_state(self.model, self.optimizer)

    def method_config(self, *, prove: bool) -> MethodConfig:
        """The settings of the method, with what follows from the rest of the recipe."""
        optimizer = self.recipe.optimizer
        steps = max(len(self.data.train) // optimizer.accumulate, 1)
        run = RunFacts(
            total_steps=max(self.recipe.epochs.shrink * steps, 1), prove=prove,
            optimizer="adamw" if optimizer.name == "adamw" else "sgd",  # Muon moves gates as SGD does
            lr=optimizer.lr, momentum=optimizer.momentum,
        )  # fmt: skip
        return self.settings.settings.for_run(run)

    def attach(self) -> Shrinker:
        """Put gates on the model; it becomes a new object, so that no wrapper of the old one is in the way."""
        self.model = copy.deepcopy(self.model)
        unsynchronise_(self.model)
        self.shrinker = attach_(self.model, self.example, self.method_config(prove=True))
        self.model = self.shrinker.model
        self.average, self.stage = None, "gated"
        return self.shrinker

    def reattach(self, state: dict[str, Any]) -> None:
        """Find the groups of a model that was cut, and go on from a state of the method."""
        self.shrinker = attach_(self.model, self.example, self.method_config(prove=False))
        self.shrinker.method.load_state_dict(state)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on: plain data and tensors."""
        return {
            "stage": self.stage,
            "model": dict(self.model.state_dict()),
            "average": self.average.state_dict() if self.average is not None else None,
            "optimizer": self.memory(),
            "method": self.shrinker.method.state_dict() if self.shrinker is not None else None,
            "switches": {n: {s: getattr(g, s) for s in g.SWITCHES} for n, g in find_gates(self.model).items()},
            "cut": self.cut.to_dict() if self.cut is not None else None,
            "mask": self.mask.to_dict() if self.mask is not None else None,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        model = blank_model(self.recipe, self.data.num_classes)
        self.model = self.place(model if self._prepared is None else rebuild(model, self._prepared))
        self.shrinker = self.average = self.cut = self.mask = None
        if state["stage"] != "dense":
            self.attach()
        if state["cut"] is not None:
            self.cut = PrunePlan.from_dict(state["cut"])
            self.model = apply_plan(self.model, self.cut)
        if state["stage"] == "folded":
            fold_gates_(self.model)
            self.shrinker = None
        elif state["stage"] == "gated":
            self.reattach(state["method"])
        self.stage = state["stage"]
        _load(self.model, state["model"])
        for name, gate in find_gates(self.model).items():
            for switch, value in state["switches"][name].items():
                setattr(gate, switch, value)
        self.mask = PrunePlan.from_dict(state["mask"]) if state["mask"] is not None else None
        self.prepare(state["optimizer"])
        if state["average"] is not None:  # after the norms are shared between processes, so that its own are too
            self.average = Average(self.model, self.recipe.train.ema, int(state["average"]["age"]))
            _load(self.average.model, state["average"]["model"])

    def take_average(self) -> None:
        """Go on with the average in the model's place, where there is one."""
        if self.average is not None:
            self.model = self.average.model.requires_grad_(True)

    def cut_(self, keep: dict[str, Tensor]) -> None:
        """Cut channels out of the model, its average and the optimizer's memory."""
        unsynchronise_(self.model)
        memory, state = self.memory(), self.gated.method.state_dict()
        plan, average = self.gated.plan(keep), self._average_as_switched()
        self.model = compact(self.model, plan, self.example)
        if average is not None:
            average.cut(plan)
        self.cut = plan if self.cut is None else compose(self.cut, plan)
        self.reattach(state)
        self.prepare(cut_state(memory, plan))

    def mask_(self, keep: dict[str, Tensor]) -> None:
        """Force dead channels to zero from now on, without cutting them out."""
        self.mask = self.gated.plan(keep)
        self.gated.mask_(self.mask)
        if self.average is not None:
            self.average.mask(self.mask)

    def unmask_(self) -> None:
        """Let everything pass again."""
        self.mask = None
        self.gated.unmask_()

    def fold_(self) -> None:
        """Make the gates, constant by now, part of their layers, and train on without them."""
        memory, average = self.memory(), self._average_as_switched()
        unsynchronise_(self.model)
        self.model = fold(self.model)
        if average is not None:
            average.fold()
        self.shrinker, self.stage = None, "folded"
        self.prepare(memory)

    def end_training(self) -> None:
        """Nothing is trained any more: no wrapper is left, and norms are not shared between processes."""
        for model in (self.model, self.best):
            unsynchronise_(model)
        self.wrapped = None


def dtype_of(recipe: Recipe) -> torch.dtype:
    """The precision of the weights."""
    return torch.float64 if recipe.train.precision == "fp64" else torch.float32


def place(model: nn.Module, recipe: Recipe, fabric: Any) -> nn.Module:
    """Bring a model to where and how a run of this recipe computes."""
    if recipe.train.channels_last:
        model.to(memory_format=torch.channels_last)
    return model.to(fabric.device, dtype_of(recipe))


def build_model(recipe: Recipe, num_classes: int) -> tuple[nn.Module, PrunePlan | None]:
    """The network of a recipe with the weights it starts from, and how it was cut before, if it was.

    Raises:
        ConfigError: There is no such model, or it does not take the arguments.
        CheckpointError: The weights do not fit.
        PlanMismatchError: The saved network to start from was cut from another one.
    """
    section = recipe.model
    torch.manual_seed(recipe.seed)
    model, _ = make_model(section.name, section.args, num_classes, pretrained=section.pretrained)
    if section.weights is not None:
        load_weights_(model, section.weights)
    if section.start is None:
        return model, None
    saved = read(section.start)
    if saved.gates:
        message = f"model.start: {section.start} still has its gates; save it folded to train it on"
        raise ConfigError(message)
    return load(section.start, model), saved.plan


def blank_model(recipe: Recipe, num_classes: int) -> nn.Module:
    """The same network with its initial weights, to be filled from a file of our own."""
    section = recipe.model.model_copy(update={"pretrained": False, "weights": None, "start": None})
    return build_model(recipe.model_copy(update={"model": section}), num_classes)[0]


def make_model(
    name: str, args: dict[str, object], num_classes: int, *, pretrained: bool = False
) -> tuple[nn.Module, dict[str, Any]]:
    """A model by name with an output for each class, and the arguments it was made with.

    Without classes (images that the network itself is to label) it has the outputs it has by default.
    """
    taken = [key for key in ("spec", "pretrained") if key in args]
    if taken:
        message = f"the arguments of {name!r} cannot hold {taken[0]!r}, which is a setting of its own"
        raise ConfigError(message)
    arguments = {"num_classes": num_classes, **args} if num_classes else dict(args)
    try:
        return create(name, pretrained=pretrained, **arguments), arguments
    except ConfigError as error:
        own_code = ":" in name and name.partition(":")[0] not in ("pcshrink", "torchvision", "timm", "transformers")
        if not own_code or "num_classes" not in str(error):
            raise
    return create(name, pretrained=pretrained, **args), dict(args)


def _load(model: nn.Module, state: dict[str, Tensor]) -> None:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        message = f"the checkpoint does not fit the model: {error}; was the recipe changed since?"
        raise CheckpointError(message) from error
