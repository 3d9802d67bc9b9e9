"""A copy of a network for Torch-Pruning to work on: it scores channels and says how it would pull at the weights."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.errors import ConfigError
from pcshrink.graph.examples import examples_of
from pcshrink.graph.model import first_line, run
from pcshrink.methods.filters import channel_numbers
from pcshrink.runtime.optional import require
from pcshrink.surgery.gates import remove_gates_


@dataclass(frozen=True)
class Scored:
    """A group of Torch-Pruning as one of ours sees it.

    Attributes:
        theirs: The group, with all its channels.
        own: For each of its channels the channel of our group; -1 for none.
    """

    theirs: Any
    own: Tensor


class Twin:
    """A gateless copy of a model that shares its weights.

    Args:
        model: The model, with or without gates.
        coupling: Its groups.
        example_input: What it takes.
        importance: "magnitude", "bn-scale" or "group-norm".
        reg: What the pruner's regulariser is weighed by.

    Raises:
        ConfigError: Torch-Pruning is not installed, or does not understand the network.
    """

    def __init__(
        self, model: nn.Module, coupling: Coupling, example_input: object, importance: str, reg: float
    ) -> None:
        self.tp = require("torch_pruning")
        self.network = copy.deepcopy(model)
        remove_gates_(self.network)
        self.network.requires_grad_(True)  # it follows gradients, and sees nothing of what is frozen
        real = dict(model.named_parameters())
        self._pairs = [(real[name], theirs) for name, theirs in self.network.named_parameters()]
        self.importance, self.reg = importance, reg
        self.pruner = self._pruner(coupling, examples_of(model, example_input)[0])
        self.groups = self._scored(coupling)

    def _pruner(self, coupling: Coupling, example: object) -> Any:
        modules = dict(self.network.named_modules())
        whole = [modules[name] for name in coupling.refused if name in modules]
        pruner, importance = self.tp.pruner, self.tp.importance
        kind, score, options = {
            "magnitude": (pruner.MagnitudePruner, importance.GroupMagnitudeImportance(), {}),
            "bn-scale": (pruner.BNScalePruner, importance.BNScaleImportance(), {"reg": self.reg}),
            "group-norm": (pruner.GroupNormPruner, importance.GroupMagnitudeImportance(), {"reg": self.reg}),
        }[self.importance]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # Its defaults for channel groups are dicts that all pruners of a process would share.
                return kind(
                    self.network, example, importance=score, forward_fn=run, ignored_layers=whole,
                    in_channel_groups={}, out_channel_groups={}, **options,
                )  # fmt: skip
        except Exception as error:
            what = "does not understand this network"
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: Exception) -> ConfigError:
        cause = f"{type(error).__name__}: {first_line(error)}"
        version = self.tp.__version__
        return ConfigError(f"Torch-Pruning {version} {what}: {cause}; take another method, such as sfp or fpgm")

    def _scored(self, coupling: Coupling) -> dict[str, list[Scored]]:
        """For each of our groups those of theirs that start at a layer which writes some of its channels."""
        names = {module: name for name, module in self.network.named_modules()}
        ignored, roots = self.pruner.ignored_layers, self.pruner.root_module_types
        parts: dict[str, list[Scored]] = {group.name: [] for group in coupling.groups}
        numbers = {group.name: channel_numbers(coupling, group) for group in coupling.groups}
        for theirs in self.pruner.DG.get_all_groups(ignored_layers=ignored, root_module_types=roots):
            units = coupling.ledger.writers.get(names.get(theirs[0].dep.target.module, ""))
            if units is None or len(units) != len(theirs[0].idxs):
                continue
            for name, number in numbers.items():
                own = number[coupling.root[units]]
                if (own >= 0).any():
                    parts[name].append(Scored(theirs, torch.as_tensor(own)))
        return parts

    def unscored(self, coupling: Coupling) -> dict[str, str]:
        """Groups that cannot be scored -> why."""
        reasons = {group.name: self._why_not(group) for group in coupling.groups}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def _why_not(self, group: ChannelGroup) -> str | None:
        seen = torch.zeros(group.channels, dtype=torch.bool)
        for each in self.groups[group.name]:
            seen[each.own[each.own >= 0]] = True
        if not seen.all():
            return "Torch-Pruning finds no group there"
        try:
            worth = [self.pruner.estimate_importance(each.theirs) for each in self.groups[group.name]]
        except Exception as error:
            return f"Torch-Pruning cannot score it: {type(error).__name__}: {first_line(error)}"
        return "it has no BatchNorm that it could be scored by" if any(w is None for w in worth) else None

    def follow(self) -> None:
        """Have the weights that the model has now."""
        for mine, theirs in self._pairs:
            theirs.data = mine.data

    def scores(self, channels: dict[str, int]) -> dict[str, Tensor]:
        """What the channels of our groups are worth: the mean where one is several of theirs."""
        self.follow()
        return {name: self._score(self.groups[name], width) for name, width in channels.items()}

    def _score(self, parts: list[Scored], width: int) -> Tensor:
        total, count = torch.zeros(width), torch.zeros(width)
        for each in parts:
            worth, mine = self.pruner.estimate_importance(each.theirs).float().cpu(), each.own >= 0
            total.index_add_(0, each.own[mine], worth[mine])
            count.index_add_(0, each.own[mine], torch.ones(int(mine.sum())))
        return total / count

    def pulls(self) -> list[tuple[Tensor, Tensor]]:
        """The trained parameters, each with what the regulariser adds to its gradient.

        Raises:
            ConfigError: The regulariser fails on this network.
        """
        self.follow()
        for _, theirs in self._pairs:
            theirs.grad = torch.zeros_like(theirs)
        try:
            self.pruner.regularize(self.network)
        except Exception as error:
            what = "fails to regularise this network (reg: 0 goes without)"
            raise self._failed(what, error) from error
        # Where all channels of a group are worth the same, it divides nothing by nothing.
        return [
            (mine, theirs.grad.nan_to_num(0.0, 0.0, 0.0))
            for mine, theirs in self._pairs
            if mine.requires_grad and theirs.grad is not None
        ]
