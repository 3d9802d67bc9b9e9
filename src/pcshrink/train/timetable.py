"""When what happens: pure functions from a place in the training to its phase, learning rate and held gates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pcshrink.train.recipe.schema import EpochsSection, OptimizerSection

Phase = Literal["dense", "warmup", "shrink", "settle"]
ORDER: tuple[Phase, ...] = ("dense", "warmup", "shrink", "settle")


@dataclass(frozen=True)
class Timetable:
    """The phases of a run, in epochs, and what follows from them.

    Attributes:
        epochs: How long each phase lasts.
        optimizer: Has the learning rates.
        fold_over: Share of the settling phase after which gates that are to be folded are constant.
    """

    epochs: EpochsSection
    optimizer: OptimizerSection
    fold_over: float = 0.0

    @property
    def total(self) -> int:
        """Epochs of the whole run."""
        return self.epochs.total

    def first(self, phase: Phase) -> int:
        """The epoch a phase begins with."""
        return sum(getattr(self.epochs, p) for p in ORDER[: ORDER.index(phase)])

    def end(self, phase: Phase) -> int:
        """The epoch after a phase."""
        return self.first(phase) + int(getattr(self.epochs, phase))

    def phase(self, epoch: int) -> Phase:
        """The phase of an epoch."""
        for phase in ORDER:
            if epoch < self.end(phase):
                return phase
        return next(p for p in reversed(ORDER) if getattr(self.epochs, p))

    def through(self, phase: Phase, epoch: float) -> float:
        """The share of a phase that is over, from 0 to 1."""
        length = int(getattr(self.epochs, phase))
        return min(max((epoch - self.first(phase)) / length, 0.0), 1.0) if length else 1.0

    def lr(self, epoch: float) -> float:
        """The learning rate at a place in the training, in (fractional) epochs."""
        settings = self.optimizer
        phase = self.phase(int(epoch))
        begin = 0 if phase == "dense" else self.first("warmup")
        if phase != "dense" and not settings.hold_lr:
            lr = settings.lr * self._fall((epoch - begin) / (self.total - begin))
        elif phase in ("dense", "settle"):
            top = settings.lr if phase == "dense" else settings.settle_lr or settings.lr
            lr = top * self._fall(self.through(phase, epoch))
        else:
            lr = settings.lr
        if phase != "settle" and epoch - begin < settings.lr_warmup:
            lr *= max(epoch - begin, 0.0) / settings.lr_warmup
        return lr

    def _fall(self, share: float) -> float:
        settings = self.optimizer
        if settings.schedule == "step":
            return float(settings.gamma ** sum(share >= m for m in settings.milestones))
        return settings.final_lr + (1 - settings.final_lr) * (1 + math.cos(math.pi * share)) / 2

    def settled(self, epoch: float) -> float:
        """How far the gates are on their way to constants, if they are to be folded."""
        return min(self.through("settle", epoch) / self.fold_over, 1.0) if self.fold_over else 1.0

    def fold_epoch(self) -> int:
        """The epoch before which constant gates become part of their layers."""
        return self.first("settle") + math.ceil(round(self.epochs.settle * self.fold_over, 9))
