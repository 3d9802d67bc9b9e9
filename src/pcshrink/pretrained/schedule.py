"""How long to train: from the number of images, how quick the machine is, and how much time there is."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError
from pcshrink.train.recipe.schema import EpochsSection

LARGEST_BATCH = 32
FEWEST_BATCHES = 8  # of an epoch
STEPS = 250  # optimizer steps that a short run should have
EPOCHS = 10  # and that a long one should have
FEWEST_EPOCHS = 4
WITH_GATES = 1.3  # a step with gates takes this much longer; less as channels leave
OVERHEAD = 240.0  # seconds for groups, proofs, widths by measuring, and files
MARGIN = 1.1


@dataclass(frozen=True)
class Speed:
    """Seconds for one image.

    Attributes:
        step: Forward and backward.
        forward: Forward alone.
    """

    step: float
    forward: float


@dataclass(frozen=True)
class Schedule:
    """How long a run lasts.

    Attributes:
        epochs: Of each phase.
        batch: Images in a batch.
        epoch_seconds: What one epoch is expected to take.
        wanted: Epochs that the images ask for, with all the time in the world.
    """

    epochs: EpochsSection
    batch: int
    epoch_seconds: float
    wanted: int

    @property
    def seconds(self) -> float:
        """What the whole run is expected to take."""
        return self.epochs.total * self.epoch_seconds * MARGIN + OVERHEAD


def plan_schedule(images: int, held_out: int, speed: Speed, hours: float | None, pushing: float = 0.0) -> Schedule:
    """Choose epochs and batch size.

    Args:
        images: To train on.
        held_out: Evaluated after every epoch.
        speed: Of this machine.
        hours: The limit, if there is one.
        pushing: Share of the epochs in which channels are pushed out; 0 where one epoch is enough to choose them.

    Raises:
        ConfigError: The time is not enough for the shortest run.
    """
    batch = max(min(LARGEST_BATCH, images // FEWEST_BATCHES), 1)
    epoch = images * (speed.step * WITH_GATES + speed.forward) + held_out * speed.forward
    wanted = max(EPOCHS, -(-STEPS // max(images // batch, 1)))
    total = wanted
    if hours is not None:
        total = min(wanted, int((3600 * hours - OVERHEAD) / (epoch * MARGIN)))
    if total < FEWEST_EPOCHS:
        least = (FEWEST_EPOCHS * epoch * MARGIN + OVERHEAD) / 3600
        least = math.ceil(100 * least) / 100
        message = (
            f"--hours {hours:g} is too short: {FEWEST_EPOCHS} epochs over {images} images take {least:g} hours here"
        )
        raise ConfigError(message)
    shrink, warmup = max(round(pushing * total), 1), int(pushing > 0)
    epochs = EpochsSection(warmup=warmup, shrink=shrink, settle=total - shrink - warmup)
    return Schedule(epochs, batch, epoch, wanted)


def measure_speed(model: nn.Module, example: Tensor) -> Speed:
    """Time a copy of the network on some images, in the layout that training uses."""
    model = copy.deepcopy(model).to(memory_format=torch.channels_last)
    example = example.contiguous(memory_format=torch.channels_last)
    forward = _seconds(lambda: _forward(model, example)) / len(example)
    step = _seconds(lambda: _step(model, example)) / len(example)
    return Speed(step, forward)


def _seconds(call: Callable[[], None]) -> float:
    """The quicker of two calls, after one to warm up."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return min(taken[1:])


@torch.no_grad()
def _forward(model: nn.Module, example: Tensor) -> None:
    model.eval()(example)


def _step(model: nn.Module, example: Tensor) -> None:
    model.train()(example).float().square().mean().backward()
