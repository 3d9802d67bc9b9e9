"""The pruners of the library Torch-Pruning, as a peer to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.coupling.groups import Coupling
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Step, Target
from pcshrink.methods.choosing import Choosing
from pcshrink.methods.select import lowest_globally
from pcshrink.methods.torch_pruning_twin import Twin

# What the library's own pruners have by default.
REGS = {"magnitude": 0.0, "bn-scale": 1e-5, "group-norm": 1e-4}


@dataclass(frozen=True, kw_only=True)
class TorchPruningConfig(MethodConfig):
    """Settings of Torch-Pruning; ``ratio`` is its pruning ratio.

    Attributes:
        importance: What channels are worth: "group-norm" and "magnitude", the L2 norm of all weights that belong to
            one; "bn-scale", the size of its norms' scales.
        reg: What the pruner's regulariser is weighed by while shrinking. Without a number the library's own: 1e-4 for
            group-norm, 1e-5 for bn-scale, none for magnitude. 0 turns it off: the choice is made when the phase begins.
        scope: Rank the channels of each group ("local"), so that all give the same share, or of all groups together.
    """

    method: ClassVar[str] = "torch-pruning"

    importance: Literal["group-norm", "bn-scale", "magnitude"] = "group-norm"
    reg: float | None = None
    scope: Literal["local", "global"] = "local"

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        fine = self.reg is None or (is_number(self.reg) and self.reg >= 0)
        self.check(fine, "reg", self.reg, "a number of at least 0, or none")
        fine = self.importance != "magnitude" or not self.reg
        self.check(fine, "reg", self.reg, "0 with importance magnitude, whose pruner has no regulariser")

    @property
    def weight(self) -> float:
        """What the regulariser is weighed by."""
        return REGS[self.importance] if self.reg is None else self.reg


class TorchPruning(Choosing[TorchPruningConfig]):
    """Torch-Pruning: its importance, its regularisers and its ranking choose, and what they choose is cut here.

    A copy of the network that shares its weights belongs to a pruner of the library: ``GroupNormPruner``,
    ``BNScalePruner`` or ``MagnitudePruner``. What its ``estimate_importance`` says about its groups ranks the channels
    of ours. What its ``regularize`` adds to the gradients is added to the loss as sum of w * detached(pull), whose
    gradient is just that; for group-norm reg * gamma_c * w with gamma_c = 16 ^ ((s_max - s_c) / (s_max - s_min)),
    s the root of the importance; for bn-scale reg * sign(w) on the scales of norms. With a regulariser the lowest
    channels leave at the end of the phase, without one when it begins.

    Departs from the library in three things. Only groups that can be proven are cut, and a budget sets how many
    channels go, where the library has a ratio. A plan of pcshrink says what leaves, so saved networks need no other
    library. Pulls that are not finite, as for a group whose channels are all worth the same, are left out.
    """

    Config: ClassVar[type[MethodConfig]] = TorchPruningConfig
    starts_from: ClassVar[str] = "dense weights"
    budget_by: ClassVar[str] = "the same share of every group, or one threshold"
    reference: ClassVar[str] = "Fang et al., DepGraph: Towards Any Structural Pruning, 2023, with its library"
    variants: ClassVar[tuple[str, ...]] = ("importance=bn-scale", "importance=magnitude")

    def __init__(self, config: TorchPruningConfig) -> None:
        super().__init__(config)
        self.target: Target | None = None
        self._twin: Twin | None = None
        self._unscored: dict[str, str] = {}

    @property
    def twin(self) -> Twin:
        """The copy that the library works on."""
        if self._twin is None:
            message = "method torch-pruning is on no network yet; attach it first"
            raise ConfigError(message)
        return self._twin

    @property
    def holds(self) -> bool:
        """With a regulariser the choice is made at the end, without one at once."""
        return self.config.weight == 0

    def couple(self, model: nn.Module, example_input: object) -> Coupling:
        """Find the groups, and let the library find its own; those that it cannot score stay whole.

        Raises:
            ConfigError: It is not installed, does not understand the network, or can score no group.
        """
        coupling = super().couple(model, example_input)
        self._twin = Twin(model, coupling, example_input, self.config.importance, self.config.weight)
        self._unscored = self._twin.unscored(coupling)
        if len(self._unscored) == len(coupling.groups):
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self._unscored.items())[:4])
            message = f"method torch-pruning ({self.config.importance}) can score nothing in this network. {why}"
            raise ConfigError(message)
        if not self.holds:
            self._twin.pulls()  # a regulariser that fails is to fail now
        for name, reason in self._unscored.items():
            coupling = coupling.without([name], reason)
        return coupling

    def concerns(self) -> list[str]:
        """Groups that the library leaves out."""
        return [f"group {name} stays whole: {reason}" for name, reason in self._unscored.items()]

    def scores(self) -> dict[str, Tensor]:
        """The library's importance."""
        return self.twin.scores({group.name: group.channels for group in self.groups})

    def set_target(self, target: Target) -> None:
        """Meet a budget; what has been chosen stays."""
        self.target = target
        if self.config.scope == "local":
            self.aim(target.widths())
        elif self.held is None and not self.steps:
            self._share_out()

    def start(self) -> None:
        """Choose at once, unless a regulariser comes first."""
        self._share_out()
        super().start()

    def after_epoch(self, progress: float) -> None:
        """Share out anew by what the channels are worth in the end."""
        if progress >= 1 and self.held is None:
            self._share_out()

    def _share_out(self) -> None:
        """Set how many channels each group keeps by one ranking of all."""
        if self.config.scope == "local":
            return
        scores = self.scores()
        every = torch.cat(list(scores.values())).sort(descending=True).values

        def above(share: float) -> dict[str, float]:
            threshold = every[min(int(share * len(every)), len(every) - 1)]
            return {name: float((worth >= threshold).sum()) for name, worth in scores.items()}

        if self.target is not None:
            self.aim(self.target.widest(above))
            return
        least = [min(self.config.min_channels, g.channels) for g in self.groups]
        gone = lowest_globally(list(scores.values()), sum(g.k for g in self.groups), least)
        self.aim({g.name: g.channels - int(flags.sum()) for g, flags in zip(self.groups, gone, strict=True)})

    def loss(self, step: Step | None = None) -> Tensor | None:
        """What has the regulariser's pull as its gradient."""
        if self.holds:
            return None
        return torch.stack([(weight * pull).sum() for weight, pull in self.twin.pulls()]).sum()
