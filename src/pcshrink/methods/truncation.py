"""The paper's first ablation: cut the lowest saliences at once instead of pushing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.methods.pcs.config import GeneratorConfig
from pcshrink.methods.pcs.salience import SalienceMethod


@dataclass(frozen=True, kw_only=True)
class TruncationConfig(GeneratorConfig):
    """Settings of truncation; ``ratio`` is the share of every gate that is set to zero in the forward pass."""

    method: ClassVar[str] = "truncation"


class Truncation(SalienceMethod[TruncationConfig]):
    """Truncation: from the start of the phase the lowest entries of every gate are zero in each sample.

    Nothing is pushed, so the channels that leave in the end are those with the lowest running salience, dead or not.

    Departs from the paper in one thing: there every sample goes on choosing its channels to the end, and kernels stay
    whole (``truncation-input``). Here one cut for all inputs ends the phase, so that it can be compared with other
    methods at the same cost of what is deployed. The paper trains its generators for 30 epochs before: untrained ones
    rank the channels at random, so let there be some epochs of warm-up.
    """

    Config: ClassVar[type[MethodConfig]] = TruncationConfig
    reference: ClassVar[str] = "Pan et al., Progressive Channel-Shrinking Network, ablation"

    def __init__(self, config: TruncationConfig) -> None:
        super().__init__(config)
        self.started = False

    def start(self) -> None:
        """Cut the lowest entries from now on."""
        self.started = True
        self._truncate()

    def on_change(self) -> None:
        """Another share is cut."""
        super().on_change()
        if self.started:
            self._truncate()

    def _truncate(self) -> None:
        share = {name: g.k / g.channels for g in self.groups for name in g.gates}
        for name, gate in self.salience_gates.items():
            gate.truncated = round(share[name] * gate.spec.channels) or None

    def gone(self) -> dict[str, Tensor]:
        """Nothing leaves before the end: every sample chooses anew."""
        return {g.name: torch.zeros(g.channels, dtype=torch.bool) for g in self.groups}

    def state_dict(self) -> dict[str, Any]:
        """Whether the phase has begun."""
        return super().state_dict() | {"started": self.started}

    def load_state_dict(self, state: Any) -> None:
        """Go on where ``state_dict`` was taken."""
        self.started = bool(state["started"])
        super().load_state_dict(state)


@dataclass(frozen=True, kw_only=True)
class TruncationByInputConfig(TruncationConfig):
    """Settings of truncation to the end; ``ratio`` is the share of every gate that is zero, 30 % in the paper."""

    method: ClassVar[str] = "truncation-input"

    ratio: float | Mapping[str, float] = 0.3


class TruncationByInput(Truncation):
    """Truncation as in the paper: every sample chooses its channels to the end, so nothing is cut.

    From the start of the phase the lowest entries of every gate are zero in each sample, also where the network is
    used. Kernels stay whole, so parameters and memory access are those of the dense network and the generators; the
    multiply-adds are a mean over the inputs. The paper trains the generators for 30 epochs before: untrained ones rank
    the channels at random, so let there be some epochs of warm-up.
    """

    Config: ClassVar[type[MethodConfig]] = TruncationByInputConfig
    static: ClassVar[bool] = False
    unit: ClassVar[str] = "channel of a sample"
    budget_by: ClassVar[str] = "none; set shrink.ratio"

    def keep(self) -> dict[str, Tensor]:
        """Everything stays."""
        return {g.name: torch.ones(g.channels, dtype=torch.bool) for g in self.groups}
