"""Choose channels that the others can stand in for, and make the layers behind them do so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from pcshrink.config import MethodConfig
from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Target
from pcshrink.methods.choosing import Choosing
from pcshrink.methods.filters import axis_rows
from pcshrink.methods.processes import mean_over_processes, processes
from pcshrink.methods.refit import Plain, Readings, View, eliminate

MOST_INPUTS = 4096  # of a layer whose second moments are kept; they grow with the square
PROBED = 0.25  # share of a group that is taken away to see what that does to the scores
IMAGES = 32  # that are looked at for this
NO_READER = (
    f"no plain convolution or linear layer of at most {MOST_INPUTS} inputs reads it, so nothing could make up for it"
)


@dataclass(frozen=True, kw_only=True)
class SurgeonConfig(MethodConfig):
    """Settings of the surgeon; ``ratio`` is the largest share of a group that leaves under a budget, if that allows it.

    Attributes:
        allocation: With a budget: every group finds its own width ("learned"), or all give the same share ("uniform").
        most_images: Enough images to look at; what is left of an epoch is passed over.

    Raises:
        ConfigError: A value is out of range.
    """

    method: ClassVar[str] = "surgeon"

    allocation: Literal["learned", "uniform"] = "learned"
    most_images: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_counts("most_images")


class Surgeon(Choosing[SurgeonConfig]):
    """Optimal brain surgeon for channels: those leave for which the others can stand in, and then do.

    During the phase the network is watched, not trained: C = E[x x^T] is the second moment of what each reader of a
    group is fed. Taking channel j away, with the kernel W of the reader changed to make up for it, changes output o by
    W_oj^2 / [C^-1]_jj in the mean square. The sum over readers of the mean over outputs, each relative to its own mean
    square, is what j costs. The cheapest channels leave first, and C^-1 and W are brought up to date each time. Then a
    quarter of each group in turn is taken away and the network asked about some images: the divergence of its scores
    brings the costs of all groups to one scale. Widths follow from these costs, and every reader becomes
    W' = W C[:, S] C[S, S]^-1, S what stays.

    Departs from its sources in three things. A channel leaves all its readers at once. The places of a k x k kernel
    share one C. Of a wide group several channels leave before C^-1 is brought up to date.
    """

    Config: ClassVar[type[MethodConfig]] = SurgeonConfig
    watches: ClassVar[bool] = True
    pushing: ClassVar[float] = 0.0
    budget_by: ClassVar[str] = "what leaving costs, for what it saves"
    reference: ClassVar[str] = "Hassibi and Stork, Second order derivatives for network pruning: Optimal Brain Surgeon"

    def __init__(self, config: SurgeonConfig) -> None:
        super().__init__(config)
        self.target: Target | None = None
        self.readings: dict[str, Readings] = {}
        self.images: Tensor | None = None
        self.looked = 0  # images that this process was shown
        self.order: dict[str, Tensor] = {}
        self.costs: dict[str, Tensor] = {}
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
        target.floors(self._most)  # complains about a budget out of reach before anything is done

    def start(self) -> None:
        """Nothing was seen yet."""
        names = dict.fromkeys(n for g in self.coupling.groups for n in _readers(self.model, self.coupling, g))
        self.readings = {name: Readings(_plain(self.model, name)) for name in names}

    @torch.no_grad()
    def watch(self, run: Callable[[Tensor], Any], images: Tensor) -> None:
        """Take moments of the network as it is: norms neither use the batch nor learn from it."""
        self.looked += len(images)
        seen = 0 if self.images is None else len(self.images)
        asked = min(IMAGES - seen, len(images) // 4)
        if asked:
            # Not for the moments: on images that these were taken from, everything seems to be made up for.
            kept, images = images[:asked], images[asked:]
            self.images = kept if self.images is None else torch.cat([self.images, kept])
        training = self.model.training
        self.model.eval()
        hooks = [r.layer.register_forward_hook(r.look) for r in self.readings.values()]
        try:
            run(images)
        finally:
            for hook in hooks:
                hook.remove()
            self.model.train(training)

    @property
    def seen_enough(self) -> bool:
        """Whether all processes together were shown as many images as were asked for."""
        return self.looked * processes() >= self.config.most_images

    def finish(self) -> bool:
        """Choose, and let what stays stand in for what leaves."""
        self._sum_over_processes()
        for group in self.coupling.groups:
            views = [self._view(name, group) for name in _readers(self.model, self.coupling, group)]
            self.order[group.name], self.costs[group.name] = eliminate(views, group.channels)
        if self.images is not None:
            self._weigh(self.images)
        if self.target is not None:
            self.aim(self._widths(self.target))
        self._hold(self.choose())
        self._refit(self.keep(), self.readings)
        self.readings, self.images = {}, None
        return True

    def _refit(self, keep: Mapping[str, Tensor], names: Iterable[str]) -> None:
        """Let what stays stand in for what leaves, in some readers."""
        alive = self.coupling.alive({name: flags.cpu().numpy() for name, flags in keep.items()})
        for name in names:
            units = next(u for slot, axis, u in self.coupling.ledger.slots if (slot, axis) == (f"{name}.weight", 1))
            readings = self.readings[name]
            readings.refit_(torch.as_tensor(alive[units], device=readings.moment.device))

    @torch.no_grad()
    def _weigh(self, images: Tensor) -> None:
        """Bring the costs of all groups to one scale: what leaving does to the scores of the whole network."""
        training = self.model.training
        wanted = self.model.eval()(images)
        if isinstance(wanted, Tensor) and wanted.ndim == 2:
            changes = torch.tensor([self._change(group, images, wanted) for group in self.coupling.groups])
            mean_over_processes(changes)
            for group, change in zip(self.coupling.groups, changes.tolist(), strict=True):
                costs = self.costs[group.name]
                costs *= change / max(float(costs[: _probed(group)].sum()), 1e-12)
        self.model.train(training)

    def _change(self, group: ChannelGroup, images: Tensor, wanted: Tensor) -> float:
        """How far the scores move when a share of one group leaves: the mean divergence."""
        readers = _readers(self.model, self.coupling, group)
        before = [[p.clone() for p in self.readings[name].layer.parameters(recurse=False)] for name in readers]
        stays = torch.ones(group.channels, dtype=torch.bool)
        stays[self.order[group.name][: _probed(group)]] = False
        self.let_pass({group.name: stays})
        self._refit({group.name: stays}, readers)
        got = self.model(images)
        for name, kept in zip(readers, before, strict=True):
            for parameter, old in zip(self.readings[name].layer.parameters(recurse=False), kept, strict=True):
                parameter.copy_(old)
        self.let_pass({})
        logs = [scores.float().log_softmax(dim=-1) for scores in (got, wanted)]
        return float(F.kl_div(logs[0], logs[1], reduction="batchmean", log_target=True))

    def _view(self, name: str, group: ChannelGroup) -> View:
        readings = self.readings[name]
        index = axis_rows(self.coupling, group, f"{name}.weight", 1).index
        return View.of(readings, index, readings.layer.weight.shape[1])

    def _widths(self, target: Target) -> dict[str, int]:
        if self.config.allocation == "uniform":
            return target.widths()
        return target.widths(self.scores(), target.floors(self._most))

    @property
    def _most(self) -> float:
        """The largest share of a group that may leave."""
        return 0.0 if isinstance(self.config.ratio, Mapping) else self.config.ratio

    def _sum_over_processes(self) -> None:
        for readings in self.readings.values():
            mean_over_processes(readings.moment)

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
        return "method surgeon has not watched the network: call method.start(), method.watch(), then method.finish()"

    def state_dict(self) -> dict[str, Any]:
        """What was seen so far."""
        return super().state_dict() | {
            "readings": {name: r.state() for name, r in self.readings.items()},
            "images": self.images,
            "looked": self.looked,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.looked = state["looked"]
        if state["readings"]:
            self.start()
            for name, kept in state["readings"].items():
                self.readings[name].load(kept)
            device = next(self.model.parameters()).device
            self.images = None if state["images"] is None else state["images"].to(device)
        super().load_state_dict(state)


def _probed(group: ChannelGroup) -> int:
    return max(round(PROBED * group.channels), 1)


def _readers(model: nn.Module, coupling: Coupling, group: ChannelGroup) -> list[str]:
    """The layers that read a group and whose kernels can be changed to make up for channels that leave."""
    slots = {name for name, axis, _ in coupling.ledger.slots if axis == 1}
    plain = {name: model.get_submodule(name) for name in group.readers if f"{name}.weight" in slots}
    return [name for name, layer in plain.items() if _can_refit(layer)]


def _can_refit(layer: nn.Module) -> bool:
    if isinstance(layer, _ConvNd):
        return layer.groups == 1 and not layer.transposed and layer.weight.shape[1] <= MOST_INPUTS
    return isinstance(layer, nn.Linear) and layer.in_features <= MOST_INPUTS


def _plain(model: nn.Module, name: str) -> Plain:
    layer = model.get_submodule(name)
    assert isinstance(layer, (nn.Linear, _ConvNd))
    return layer
