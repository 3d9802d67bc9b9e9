"""Choose channels that the others can stand in for, and make the layers behind them do so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pcshrink.config import MethodConfig
from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Step, Target
from pcshrink.methods.choosing import Choosing
from pcshrink.methods.filters import axis_rows
from pcshrink.methods.refit import Readings, View, eliminate

MOST_INPUTS = 4096  # of a layer whose second moments are kept; they grow with the square
GRADED_EVERY = 2  # steps after which gradients at the outputs are looked at
NO_READER = "no plain convolution or linear layer of at most 4096 inputs reads it, so nothing could make up for it"


@dataclass(frozen=True, kw_only=True)
class SurgeonConfig(MethodConfig):
    """Settings of the surgeon; ``ratio`` is the largest share of a group that leaves under a budget, if that allows it.

    Attributes:
        allocation: With a budget: every group finds its own width ("learned"), or all give the same share ("uniform").
    """

    method: ClassVar[str] = "surgeon"

    allocation: Literal["learned", "uniform"] = "learned"


class Surgeon(Choosing[SurgeonConfig]):
    """Optimal brain surgeon for channels: those leave for which the others can stand in, and then do.

    During the phase the network trains on and is watched: C = E[x x^T], the second moment of what each reader of a
    group is fed, and G_o = E[sum of (dL/dy_o)^2], L the loss for labels drawn from the network's own scores. Taking
    channel j away, with the kernel W of the readers changed to make up for it, costs sum over readers and outputs of
    G_o W_oj^2 / [C^-1]_jj. The cheapest channels leave first, and C^-1 and W are brought up to date each
    time. At the end of the phase widths follow from these costs, and every reader becomes
    W' = W C[:, S] C[S, S]^-1, S what stays.

    Departs from its sources in three things. A channel leaves all its readers at once. The places of a k x k kernel
    share one C. Of a wide group several channels leave before C^-1 is brought up to date.
    """

    Config: ClassVar[type[MethodConfig]] = SurgeonConfig
    pushing: ClassVar[float] = 0.0
    budget_by: ClassVar[str] = "what leaving costs, for what it saves"
    reference: ClassVar[str] = "Hassibi and Stork, Second order derivatives for network pruning: Optimal Brain Surgeon"

    def __init__(self, config: SurgeonConfig) -> None:
        super().__init__(config)
        self.target: Target | None = None
        self.readings: dict[str, Readings] = {}
        self.order: dict[str, Tensor] = {}
        self.costs: dict[str, Tensor] = {}
        self._hooks: list[RemovableHandle] = []
        self._whole: list[str] = []

    @property
    def holds(self) -> bool:
        """The choice is made at the end."""
        return False

    @classmethod
    def for_pretrained(cls) -> dict[str, Any]:
        """No group gives more than two thirds."""
        return {"ratio": 0.67}

    def couple(self, model: nn.Module, example_input: Any) -> Coupling:
        """Find the groups; those that nothing reads that could be changed stay whole.

        Raises:
            ConfigError: There is no other.
        """
        coupling = super().couple(model, example_input)
        self._whole = [g.name for g in coupling.groups if not _readers(model, coupling, g)]
        if len(self._whole) == len(coupling.groups):
            message = f"method surgeon can do nothing for this network: {NO_READER}"
            raise ConfigError(message)
        return coupling.without(self._whole, NO_READER) if self._whole else coupling

    def concerns(self) -> list[str]:
        """Groups that stay whole."""
        return [f"group {name} stays whole: {NO_READER}" for name in self._whole]

    def set_target(self, target: Target) -> None:
        """Keep the budget for the end of the phase, when it is known what channels are worth."""
        self.target = target

    def start(self) -> None:
        """Watch the readers from now on."""
        names = dict.fromkeys(n for g in self.coupling.groups for n in _readers(self.model, self.coupling, g))
        self.readings = {name: Readings(self.model.get_submodule(name)) for name in names}
        self._hooks = [r.layer.register_forward_hook(r.look) for r in self.readings.values()]

    def loss(self, step: Step | None = None) -> Tensor | None:
        """Nothing is added; how much the readers' outputs matter is seen here."""
        outputs = [r.outputs for r in self.readings.values()]
        if step is not None and step.scores is not None and self.steps % GRADED_EVERY == 0:
            drawn = self._draw(step.scores)
            flat = [y for each in outputs for y in each]
            if drawn is not None and all(y.requires_grad for y in flat):
                gradients = iter(torch.autograd.grad(drawn, flat, retain_graph=True))
                for readings in self.readings.values():
                    readings.grade([next(gradients) for _ in readings.outputs])
        self.forget_pass()
        return None

    def _draw(self, scores: Tensor) -> Tensor | None:
        """The loss for labels that the network itself finds likely; None where it is no classifier."""
        if scores.ndim != 2:
            return None
        chances = scores.detach().float().softmax(dim=-1).cpu()
        labels = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(self.steps)).flatten()
        return F.cross_entropy(scores.float(), labels.to(scores.device), reduction="sum")

    def forget_pass(self) -> None:
        """Let go of the newest outputs."""
        for readings in self.readings.values():
            readings.outputs = []

    def finish(self) -> bool:
        """Choose, and let what stays stand in for what leaves."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._sum_over_processes()
        for group in self.coupling.groups:
            views = [self._view(name, group) for name in _readers(self.model, self.coupling, group)]
            self.order[group.name], self.costs[group.name] = eliminate(views, group.channels)
        if self.target is not None:
            self.aim(self._widths(self.target))
        self._hold(self.choose())
        alive = self.coupling.alive({name: flags.numpy() for name, flags in self.keep().items()})
        for name, readings in self.readings.items():
            units = next(u for slot, axis, u in self.coupling.ledger.slots if (slot, axis) == (f"{name}.weight", 1))
            readings.refit_(torch.as_tensor(alive[units], device=readings.moment.device))
        self.readings = {}
        return True

    def _view(self, name: str, group: ChannelGroup) -> View:
        readings = self.readings[name]
        index = axis_rows(self.coupling, group, f"{name}.weight", 1).index
        return View.of(readings, index, int(readings.layer.weight.shape[1]))

    def _widths(self, target: Target) -> dict[str, int]:
        if self.config.allocation == "uniform":
            return target.widths()
        share = 0.0 if isinstance(self.config.ratio, Mapping) else self.config.ratio
        return target.widths(self.scores(), target.floors(share))

    def _sum_over_processes(self) -> None:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            for readings in self.readings.values():
                dist.all_reduce(readings.moment.div_(dist.get_world_size()))
                dist.all_reduce(readings.concern.div_(dist.get_world_size()))

    def scores(self) -> dict[str, Tensor]:
        """What the loss of each channel costs, once that is known."""
        if not self.order:
            return super().scores()
        return {
            g.name: torch.empty_like(self.costs[g.name]).scatter(0, self.order[g.name], self.costs[g.name])
            for g in self.groups
        }

    def choose(self) -> dict[str, Tensor]:
        """The first k of each group in the order in which they were taken away; none before that is known."""
        chosen = {g.name: torch.zeros(g.channels, dtype=torch.bool) for g in self.groups}
        for group in self.groups if self.order else ():
            chosen[group.name][self.order[group.name][: group.k]] = True
        return chosen

    def diagnosis(self) -> str:
        """Why nothing would leave."""
        return "method surgeon has not watched the network: call method.start(), train, then method.finish()"

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far."""
        return super().state_dict() | {"readings": {name: r.state() for name, r in self.readings.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        if state["readings"]:
            self.start()
            for name, kept in state["readings"].items():
                self.readings[name].load(kept)
        super().load_state_dict(state)


def _readers(model: nn.Module, coupling: Coupling, group: ChannelGroup) -> list[str]:
    """The layers that read a group and whose kernels can be changed to make up for channels that leave."""
    slots = {name for name, axis, _ in coupling.ledger.slots if axis == 1}
    found = []
    for name in group.readers:
        layer = model.get_submodule(name)
        plain = isinstance(layer, nn.Linear) or (isinstance(layer, nn.modules.conv._ConvNd) and _forward_conv(layer))
        if plain and f"{name}.weight" in slots and layer.weight.shape[1] <= MOST_INPUTS:
            found.append(name)
    return found


def _forward_conv(layer: nn.modules.conv._ConvNd) -> bool:
    return layer.groups == 1 and not layer.transposed
