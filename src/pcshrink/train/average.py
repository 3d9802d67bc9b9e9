"""The running average of the weights, which is what is evaluated and saved where it is on."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.fold import fold
from pcshrink.surgery.gates import find_gates
from pcshrink.surgery.mask import mask_
from pcshrink.surgery.plan import PrunePlan


class Average:
    """Follows a model that is being trained, through its cuts as well.

    Attributes:
        model: The average as a network.
        age: Steps since it began.
    """

    def __init__(self, model: nn.Module, decay: float, age: int = 0) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.decay, self.age = decay, age

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move a step towards the model; buffers follow at once."""
        # A young average follows faster, or it would remember where it started.
        decay = min(self.decay, (1 + self.age) / (10 + self.age))
        for mean, new in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(new.to(mean.dtype), 1 - decay)
        for kept, now in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(now)
        self.age += 1

    @torch.no_grad()
    def recalibrate(self, batches: Iterable[Tensor]) -> None:
        """Take the statistics of the batch norms anew.

        The model's own belong to its newest weights, which at a high learning rate are far from their average.

        Args:
            batches: Training images; the norms end up with the mean over these batches.
        """
        norms = [m for m in self.model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # all batches alike
            norm.training = True
        try:
            for images in batches if norms else ():
                self.model(images)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum, norm.training = momentum, False

    def follow_switches(self, model: nn.Module) -> None:
        """Let the gates do what the model's gates do, which alone are ever switched by a method."""
        own = find_gates(self.model)
        for name, gate in find_gates(model).items():
            for switch in gate.SWITCHES:
                setattr(own[name], switch, getattr(gate, switch))

    def cut(self, plan: PrunePlan) -> None:
        """Lose what the model loses."""
        self.model = apply_plan(self.model, plan)

    def mask(self, plan: PrunePlan) -> None:
        """Let only what a plan keeps pass."""
        mask_(self.model, plan)

    def fold(self) -> None:
        """Make the gates part of their layers."""
        self.model = fold(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and age."""
        return {"model": dict(self.model.state_dict()), "age": self.age}
