"""The paper's second ablation: push all saliences alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Target
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.method import PCS


@dataclass(frozen=True, kw_only=True)
class LassoConfig(ShrinkConfig):
    """Settings of the lasso; ``ratio`` has no effect, since all channels are pushed.

    Attributes:
        scope: Nothing is ranked, so there is nothing to choose.
        allocation: There is no budget, so there is nothing to choose.
    """

    method: ClassVar[str] = "lasso"

    scope: Literal["group"] = "group"
    allocation: Literal["learned"] = "learned"


class Lasso(PCS):
    """LASSO: the growing penalty is on all saliences, not on the k lowest; what reaches zero leaves."""

    Config: ClassVar[type[MethodConfig]] = LassoConfig
    budget_by: ClassVar[str] = "none; set the strength"
    reference: ClassVar[str] = "Pan et al., Progressive Channel-Shrinking Network, ablation"

    def select(self) -> Tensor:
        """Everything."""
        return torch.ones_like(self.units.running, dtype=torch.bool)

    def set_target(self, target: Target) -> None:
        """A budget cannot be met by pushing everything.

        Raises:
            ConfigError: Always.
        """
        message = (
            "method lasso pushes all channels alike and takes no budget; set shrink.strength instead of shrink.budget"
        )
        raise ConfigError(message)
