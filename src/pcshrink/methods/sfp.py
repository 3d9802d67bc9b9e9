"""Soft filter pruning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.methods.choosing import Choosing
from pcshrink.methods.filters import Filters


@dataclass(frozen=True, kw_only=True)
class SFPConfig(MethodConfig):
    """Settings of soft filter pruning; ``ratio`` is the source's pruning rate, the same for every group.

    Attributes:
        shifts: With a filter its biases and its norms' shifts and running means are set to zero as well ("zero"), so
            that its channel is exactly zero, or stay ("keep"), as in the source, and leave with the final cut.
    """

    method: ClassVar[str] = "sfp"

    shifts: Literal["zero", "keep"] = "zero"


class SoftPruning(Choosing[SFPConfig]):
    """SFP: after every epoch the filters of smallest L2 norm are set to zero, and may grow back in the next one.

    The score of channel c of a group is ||F_c||_2, where F_c is everything that writes the channel: the filters of all
    writers side by side. The k lowest are set to zero after each epoch of the shrinking phase; gradients, momentum and
    weight decay act on them as on all others. What is chosen after the last epoch is cut.

    Departs from the source in five things. Channels are chosen for a whole group, so a residual stream shrinks too and
    nothing is indexed at run time (the source chooses in each layer and keeps the stream). Nothing is zeroed before
    the first epoch, since a filter that is zero from its initialisation on never comes back. k is rounded, not
    truncated, and with a budget it is the number that meets it. By default shifts go to zero with their filters: what
    a norm emits for a zero filter would be lost in the cut anyhow. A filter that grows back becomes no larger than the
    smallest that was kept beside it: behind a norm the gradient of a zero filter is multiplied by 1 / sqrt(eps), so
    that it would come back ten times as large as the others, which would then be zeroed one after the other. So it
    takes the place of another only where that one has shrunk since. The optimizer's momentum of a zeroed filter stays.

    Attributes:
        limits: For each group the norms that filters on their way back may have (writers, channels); 0: any.
    """

    Config: ClassVar[type[MethodConfig]] = SFPConfig
    unit: ClassVar[str] = "filter"
    starts_from: ClassVar[str] = "scratch, or dense weights"
    budget_by: ClassVar[str] = "the same share of every group"
    reference: ClassVar[str] = (
        "He et al., Soft Filter Pruning for Accelerating Deep Convolutional Neural Networks, 2018"
    )

    def __init__(self, config: SFPConfig) -> None:
        super().__init__(config)
        self.filters: dict[str, Filters] = {}
        self.limits: dict[str, Tensor] = {}

    @property
    def holds(self) -> bool:
        """Filters may come back, so the choice is made anew after every epoch."""
        return False

    def on_attach(self, new: set[str]) -> None:
        """Find the filters of every group.

        Raises:
            ConfigError: A layer has no plain weight.
        """
        groups, name = self.coupling.groups, self.config.method
        self.filters = {g.name: Filters(self.model, self.coupling, g, name) for g in groups}

    def scores(self) -> dict[str, Tensor]:
        """The L2 norms of the filters."""
        return {name: filters.matrix().norm(dim=1) for name, filters in self.filters.items()}

    def after_epoch(self, progress: float) -> None:
        """Set the smallest filters to zero."""
        for name, chosen in self.choose().items():
            filters = self.filters[name]
            self.limits[name] = torch.where(chosen, self.largest(filters.norms(), chosen), 0.0)
            filters.zero_(chosen, shifts=self.config.shifts == "zero")

    def largest(self, norms: Tensor, chosen: Tensor) -> Tensor:
        """How large filters of each writer may grow back (W, C): as the smallest that is not among the chosen (C,)."""
        return norms.masked_fill(chosen, float("inf")).amin(dim=1, keepdim=True).expand_as(norms)

    def after_step(self, *, pushing: bool = True) -> None:
        """Let filters grow back to the size of the smallest that was kept, but no further."""
        super().after_step(pushing=pushing)
        if pushing:
            for name, largest in self.limits.items():
                self.filters[name].limit_(largest)

    def state_dict(self) -> dict[str, Any]:
        """How large filters on their way back may become."""
        return super().state_dict() | {"limits": {name: largest.tolist() for name, largest in self.limits.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; nothing limits groups that were cut since."""
        super().load_state_dict(state)
        for name, filters in self.filters.items():
            norms, largest = filters.norms(), torch.tensor(state["limits"].get(name, []))
            if largest.shape == norms.shape:
                self.limits[name] = largest.to(norms)
