"""The seam between methods and everything else: what a method may do, and when it is asked.

A method decides which channels go. It puts gates on a model whose groups are known, may add to the loss, acts after
steps and epochs, and says in the end what stays. Finding groups, proving, cutting, counting, budgets, training,
saving and reporting are the same for all methods and know none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig, Quantity
from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.errors import ConfigError
from pcshrink.methods.context import ActivityTarget, Step, Target
from pcshrink.methods.figures import Label, plain_label
from pcshrink.methods.group import Group
from pcshrink.methods.select import by_pattern, count, lowest
from pcshrink.proof.discover import discover
from pcshrink.surgery.gate import Gate, GateSpec
from pcshrink.surgery.gates import add_gates_, find_gates
from pcshrink.surgery.plan import GateSite, gate_sites

C = TypeVar("C", bound=MethodConfig)


class Method(Generic[C]):
    """Base of all methods; every hook has a default that does nothing or the usual thing.

    Attributes:
        Config: The settings; their class names the method.
        Gate: The kind of gate put on every site.
        restarts: ``start`` draws other weights, so what was learned about the old ones is forgotten.
        static: The mask is the same for all inputs, so channels can be cut out.
        needs_budget: There is nothing to do without a budget that can be counted.
        unit: What a mask entry stands for.
        starts_from: What the source of the method starts from.
        budget_by: How a budget is set; "none; " and the knob there is instead, where it cannot be.
        without_widths: Why the groups have no widths to aim at, and what to set instead; empty where they have.
        needs: What the method has beyond the common recipe: "teacher", "two stages", "pretrained weights";
            or what only its source has: "... in the source (off here)".
        reference: Where the method was published.
        watches: In the shrinking phase the method only looks: nothing is trained.
        pushing: Share of a short training of a pretrained network that the phase needs; 0 where one epoch is enough.
        score_name: What ``scores`` are called, where they lie between 0 and 1 and a channel leaves by falling to 0, so
            that their traces tell how it went; empty for others.
        variants: Settings, as ``key=value``, that make rows of their own in a comparison of all methods.
        gates: Module name -> gate.
        groups: The groups, in the order of the coupling.
        sites: Place of each gate -> how it is built and the units of its channels.
        refused: Layers that the method itself leaves whole -> why.
        align: What kept widths are multiples of, by group.
        steps: Steps taken in the shrinking phase.
        pushed: What the newest loss adds to the task's, before it is weighted.
    """

    Config: ClassVar[type[MethodConfig]] = MethodConfig
    Gate: ClassVar[type[Gate]] = Gate
    restarts: ClassVar[bool] = False
    static: ClassVar[bool] = True
    needs_budget: ClassVar[bool] = False
    unit: ClassVar[str] = "channel of a group"
    starts_from: ClassVar[str] = "dense weights"
    budget_by: ClassVar[str] = "widths of the groups"
    without_widths: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    reference: ClassVar[str] = ""
    watches: ClassVar[bool] = False
    pushing: ClassVar[float] = 0.3
    score_name: ClassVar[str] = ""
    variants: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: C) -> None:
        self.config: C = config
        self.model: nn.Module
        self.coupling: Coupling
        self.gates: dict[str, Gate] = {}
        self.groups: list[Group] = []
        self.sites: dict[Any, GateSite] = {}
        self.refused: dict[str, str] = {}
        self.align: dict[str, int] = {}
        self.steps = 0
        self.pushed = 0.0

    @classmethod
    def summary(cls) -> str:
        """The first line of the method's description."""
        return (cls.__doc__ or "").strip().split("\n", 1)[0]

    @classmethod
    def for_pretrained(cls) -> dict[str, Any]:
        """Settings for a network that is good already and has few steps to stay so; the usual ones by default."""
        return {}

    @classmethod
    def takes_budget(cls) -> bool:
        """Whether a budget can be set."""
        return not cls.budget_by.startswith("none")

    @property
    def progress(self) -> float:
        """The share of the shrinking phase that is over."""
        return min(self.steps / self.config.total_steps, 1.0)

    def prepare(self, model: nn.Module, example_input: Any) -> nn.Module:
        """Change layers before groups are found; the model itself by default."""
        return model

    def rebuild(self, model: nn.Module) -> nn.Module:
        """Give a fresh network the layers that ``prepare`` makes, their values aside; for saved networks.

        Raises:
            ConfigError: The method makes none, or not of this network.
        """
        message = f"method {self.config.method} makes no layers of its own"
        raise ConfigError(message)

    def undo(self, model: nn.Module) -> nn.Module:
        """Put layers as they were into the place of those that ``prepare`` made, to know what the network cost."""
        return model

    def couple(self, model: nn.Module, example_input: object) -> Coupling:
        """Find the groups, by default those that can be cut, proven.

        Raises:
            NoSitesError: There are none, or a pattern matches nothing.
            TraceError: The model does not run on the example input.
        """
        return discover(model, example_input, self.config, reads_input=self.Gate.READS_INPUT)

    def places(self, coupling: Coupling) -> dict[Any, GateSite]:
        """Where gates go, by default where the groups need them."""
        return gate_sites(coupling)

    def gate_spec(self, spec: GateSpec) -> GateSpec:
        """Make a plain gate one of this method's kind."""
        return replace(spec, kind=self.Gate.kind)

    def attach(self, model: nn.Module, coupling: Coupling, align: int | Mapping[str, int] = 1) -> None:
        """Put gates on the model; those that are there already are kept."""
        self.model, self.coupling = model, coupling
        self.align = {group.name: by_pattern(align, group.writers, 1) for group in coupling.groups}
        present = find_gates(model)
        self.sites = {
            site: entry._replace(
                spec=present[entry.spec.module].spec if entry.spec.module in present else self.gate_spec(entry.spec)
            )
            for site, entry in self.places(coupling).items()
        }
        gates = add_gates_(model, [entry.spec for entry in self.sites.values()])
        self.gates = {site.module: gates[site.module] for site in self.sites}
        self.groups = [Group(group, self, self._k(group)) for group in coupling.groups]
        self.on_attach({name for name in self.gates if name not in present})

    def _k(self, group: ChannelGroup) -> int:
        ratio = by_pattern(self.config.ratio, group.writers, 0.0)
        return count(ratio, group.channels, self.config.min_channels, self.align[group.name]) if ratio else 0

    def on_attach(self, new: set[str]) -> None:
        """Gates were put on; ``new`` are the layers that had none before."""

    def on_change(self) -> None:
        """The number of channels that may leave was changed."""

    def aim(self, keep: Mapping[str, int]) -> None:
        """Set how many channels the groups are to keep, by name; a group that is not named keeps all it has.

        Raises:
            ConfigError: The method has no widths, a name is unknown, or a number is impossible.
        """
        if self.without_widths:
            message = f"method {self.config.method} cannot aim at widths: {self.without_widths}"
            raise ConfigError(message)
        known = {group.name: group for group in self.groups}
        if not isinstance(keep, Mapping):
            message = f"widths are given by group, such as {{{next(iter(known), 'name')!r}: 8}}, got {keep!r}"
            raise ConfigError(message)
        for name, width in keep.items():
            if name not in known:
                message = f"no group is called {name!r}; the groups are {', '.join(known)}"
                raise ConfigError(message)
            if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
                message = f"group {name!r} must keep a whole number of at least 1 channel, got {width!r}"
                raise ConfigError(message)
        for group in self.groups:
            group._k = max(group.channels - int(keep.get(group.name, group.channels)), 0)
        self.on_change()

    def let_pass(self, keep: Mapping[str, Tensor]) -> None:
        """Let only these channels of the groups pass the gates from now on; groups not named pass whole."""
        alive = self.coupling.alive({name: flags.cpu().numpy() for name, flags in keep.items()})
        for site, entry in self.sites.items():
            own = np.flatnonzero(alive[entry.own]).tolist()
            self.gates[site.module].restrict(own, np.flatnonzero(alive[entry.fed]).tolist())

    def set_target(self, target: Target) -> None:
        """A budget is to be met. By default the same share of every group goes."""
        self.aim(target.widths())

    def set_activity_target(self, target: ActivityTarget) -> None:
        """A budget is to be met by a method whose mask depends on the input.

        Raises:
            ConfigError: The method has no setting that a budget could be met by.
        """
        setting = self.budget_by.partition("; ")[2] or "remove"
        message = (
            f"method {self.config.method} takes no budget: what an input costs falls out of the training; "
            f"{setting} instead of shrink.budget"
        )
        raise ConfigError(message)

    @property
    def priced_by(self) -> Quantity | None:
        """Which cost of a channel the method wants to know; None for none."""
        return None

    def set_prices(self, prices: Mapping[str, float]) -> None:
        """What one channel of each group costs, relative to the mean channel; for methods that weigh by it."""

    def start(self) -> None:
        """The shrinking phase begins."""

    def watch(self, run: Callable[[Tensor], Any], images: Tensor) -> None:
        """Look at the network while it runs on a batch; for methods that train nothing in their phase."""
        run(images)

    @property
    def seen_enough(self) -> bool:
        """Whether a method that only looks needs no more batches: what is left of the epoch is passed over."""
        return False

    def loss(self, step: Step | None = None) -> Tensor | None:
        """What is added to the task loss after a training forward pass; None for nothing."""
        return None

    def adds_loss(self, phase: str) -> bool:
        """Whether ``loss`` is added in this phase: ``warmup``, ``shrink`` or ``settle``."""
        return phase == "shrink"

    def after_step(self, *, pushing: bool = True) -> None:
        """An optimizer step was taken; ``pushing`` in the shrinking phase."""
        self.steps += int(pushing)

    def after_epoch(self, progress: float) -> None:
        """An epoch of the shrinking phase is over; ``progress`` is the share of the phase that is."""

    def finish(self) -> bool:
        """The shrinking phase is over; whether other parameters than before are to be trained from now on."""
        return False

    def after_settling_epoch(self, progress: float) -> None:
        """An epoch of the settling phase is over; ``progress`` is the share of the phase that is."""

    def forget_pass(self) -> None:
        """The newest forward pass was bad (not finite): let nothing of it remain."""

    def scores(self) -> dict[str, Tensor]:
        """What the channels of each group are ranked by; low ones go first."""
        return {group.name: torch.ones(group.channels) for group in self.groups}

    def selected(self) -> dict[str, Tensor]:
        """Which channels of each group are on their way out: the k lowest."""
        scores = self.scores()
        return {g.name: lowest(scores[g.name], g.k) for g in self.groups}

    def keep(self) -> dict[str, Tensor]:
        """Which channels of each group stay at the end of the shrinking phase: all but the selected ones."""
        return {name: ~chosen for name, chosen in self.selected().items()}

    def gone(self) -> dict[str, Tensor]:
        """Which channels of each group could be cut now without changing what the network computes."""
        return {g.name: torch.zeros(g.channels, dtype=torch.bool) for g in self.groups}

    def asleep(self) -> dict[str, Tensor]:
        """Which channels of each group would leave if the phase ended now; for progress reports."""
        return self.gone()

    def highest_cut(self, keep: Mapping[str, Tensor]) -> float | None:
        """The highest score of a channel that goes; None for methods whose scores do not fall to zero."""
        return None

    def before_step(self, *, settled: float | None) -> None:
        """A step begins; ``settled`` is the share of the way to constant gates, None while they stay free."""

    def figures(self) -> dict[str, float]:
        """What to tell about the method after an epoch of the shrinking phase, by the keys that files have."""
        return {}

    @classmethod
    def label(cls, key: str) -> Label:
        """How people read one of the ``figures``: its name and the format of its number."""
        return plain_label(key)

    @classmethod
    def dead_at(cls, settings: Mapping[str, Any]) -> float:
        """The score at or below which a channel is dead, by the settings of a run as plain data."""
        return 0.0

    def concerns(self) -> list[str]:
        """What may go wrong with these settings, to be said before anything is trained."""
        return []

    def diagnosis(self) -> str:
        """Why nothing would leave, and what to do about it."""
        return f"method {self.config.method} keeps every channel; ask for narrower groups by ratio or aim()"

    def state_dict(self) -> dict[str, Any]:
        """Plain data besides the gates' own tensors, which are in the model's state_dict."""
        return {"steps": self.steps, "widths": {g.name: g.channels - g.k for g in self.groups}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; the network may have been cut since."""
        self.steps = int(state["steps"])
        if not self.without_widths:
            known = {g.name for g in self.groups}
            self.aim({name: int(width) for name, width in state["widths"].items() if name in known})


__all__ = ["ActivityTarget", "Group", "Method", "Step", "Target"]
