"""The paper's third ablation: every input chooses by its own salience which channels are pushed down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.method import PCS


@dataclass(frozen=True, kw_only=True)
class ByInputConfig(ShrinkConfig):
    """Settings of the input-dependent policy.

    Attributes:
        scope: Each sample's saliences are ranked in each group; there is nothing to choose.
        allocation: There is no budget, so there is nothing to choose.
        price: Every channel is pushed alike; there is nothing to choose.
    """

    method: ClassVar[str] = "pcs-input"

    scope: Literal["group"] = "group"
    allocation: Literal["learned"] = "learned"
    price: Literal["none"] = "none"


class ByInput(PCS):
    """PCS with the input-dependent policy: the k lowest saliences of each sample are pushed to zero.

    Other samples use other channels, so nothing is cut: kernels stay whole, and the cost is a mean over the inputs.
    """

    Config: ClassVar[type[MethodConfig]] = ByInputConfig
    static: ClassVar[bool] = False
    unit: ClassVar[str] = "channel of a sample"
    budget_by: ClassVar[str] = "none; set shrink.ratio and shrink.strength"
    reference: ClassVar[str] = "Pan et al., Progressive Channel-Shrinking Network, ablation"

    def shrinking_loss(self) -> Tensor:
        """R over the k lowest of each sample."""
        self.check_pass()
        return self.units.loss([g.k for g in self.groups])

    def gone(self) -> dict[str, Tensor]:
        """Nothing leaves."""
        return {g.name: torch.zeros(g.channels, dtype=torch.bool) for g in self.groups}

    def keep(self) -> dict[str, Tensor]:
        """Everything stays."""
        return {g.name: torch.ones(g.channels, dtype=torch.bool) for g in self.groups}
