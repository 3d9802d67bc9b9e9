"""What all methods share whose mask depends on the input: gates on single layers, nothing cut, a measured budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig
from pcshrink.coupling.groups import Coupling
from pcshrink.coupling.units import Site
from pcshrink.errors import ConfigError, NoSitesError
from pcshrink.methods.base import ActivityTarget, Method
from pcshrink.methods.layers import ConvLayer, conv_layers
from pcshrink.methods.recording import Recording
from pcshrink.methods.select import by_pattern
from pcshrink.proof.discover import discover, excluded_layers
from pcshrink.surgery.plan import GateSite

C = TypeVar("C", bound=MethodConfig)
TRIALS = 12  # halvings of a setting's range
NEAR = (0.992, 0.999)  # a measured cost this close to its limit is left as it is
NARROW = 0.05  # share of a range that a trial keeps off its ends
GOLDEN = 0.618034


class Dynamic(Method[C]):
    """Gates sit on single convolutions and choose for each input; kernels stay whole."""

    static: ClassVar[bool] = False

    def couple(self, model: nn.Module, example_input: object) -> Coupling:
        """Find out how layers hang together; nothing is cut, so nothing has to be proven or left out."""
        config = dataclasses.replace(self.config, include=(), exclude=(), prove=False)
        return discover(model, example_input, config, reads_input=False)

    def places(self, coupling: Coupling) -> dict[Any, GateSite]:
        """One gate for every convolution that the method can handle.

        Raises:
            NoSitesError: There is none.
        """
        excluded, sites = excluded_layers(self.model, self.config), {}
        for layer in conv_layers(self.model, coupling):
            reason = excluded.get(layer.name) or self.unfit(layer)
            if reason:
                self.refused[layer.name] = reason
            else:
                sites[self.site(layer)] = self.place(layer)
        if not sites:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(self.refused.items())[:8])
            what = reasons or "it has no convolution"
            message = f"method {self.config.method} finds no layer of this network to gate: {what}"
            raise NoSitesError(message)
        return sites

    def unfit(self, layer: ConvLayer) -> str | None:
        """Why a layer gets no gate; None if it gets one."""
        return None

    def site(self, layer: ConvLayer) -> Site:
        """Where a layer's gate sits: by default where its output is complete."""
        return layer.site

    def place(self, layer: ConvLayer) -> GateSite:
        """How a layer's gate is built."""
        return layer.gate_site(self.site(layer))

    def keep(self) -> dict[str, Tensor]:
        """Everything stays."""
        return {g.name: torch.ones(g.channels, dtype=torch.bool) for g in self.groups}

    def forget_pass(self) -> None:
        """Drop what the gates have recorded."""
        for gate in self.gates.values():
            if isinstance(gate, Recording):
                gate.recorded = ()

    def adds_loss(self, phase: str) -> bool:
        """The choice stays free to the end, so what forms it does so as well."""
        return phase in ("shrink", "settle")


class Knob(Dynamic[C]):
    """A dynamic method with a setting that a budget can be met by.

    Attributes:
        goal: The setting that meets the budget; None without one.
        beyond: A higher one that does not.
        target: The budget.
        started: The shrinking phase has begun.
    """

    lowest: ClassVar[float] = 0.0
    highest: ClassVar[float] = 1.0

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.goal: float | None = None
        self.beyond = self.highest
        self.target: ActivityTarget | None = None
        self.started = False

    def open(self, goal: float) -> None:
        """Let the gates be as they are at the end of the shrinking phase if the setting is this."""
        raise NotImplementedError

    def follow(self) -> None:
        """Let the gates be as they are to be now."""
        raise NotImplementedError

    def on_attach(self, new: set[str]) -> None:
        """Begin with open gates."""
        self.follow()

    def set_activity_target(self, target: ActivityTarget) -> None:
        """Find the setting that meets a budget.

        Raises:
            ConfigError: No setting does, with the smallest cost that one can give.
        """
        self.target = target
        if self.goal is not None:
            return  # the run goes on
        self.open(self.lowest)
        least = target.cost()
        if least > target.limit:
            message = (
                f"shrink.budget.madds: method {self.config.method} cannot reach {target.limit:,.0f}; the smallest "
                f"possible here is about {least:,.0f}, a share of {least / target.dense:.3f} of the dense "
                f"{target.dense:,.0f}: {len(self.gates)} layers are gated, what lies between stays whole"
            )
            raise ConfigError(message)
        self._find(target)

    def _find(self, target: ActivityTarget) -> None:
        """Measure which setting meets the budget with the weights as they are.

        Where both ends of what is left of the range were measured, every other trial lies where a straight line
        between them meets the budget; the others halve the range, so that a bent curve does not take long either.
        """
        least, most = (share * target.limit for share in NEAR)
        low, high, step = self.lowest, self.highest, (self.highest - self.lowest) / 2**TRIALS
        below = above = math.nan  # what the ends cost
        known = [] if self.goal is None else [self.goal, self.beyond]
        halve = False
        while high - low > step * 1.5:
            on_line = (least + most - 2 * below) / (2 * (above - below)) if above > below and not halve else 0.5
            trial = known.pop(0) if known else low + (high - low) * min(max(on_line, NARROW), 1 - NARROW)
            if not low < trial < high:
                continue
            self.open(trial)
            cost = target.cost()
            if cost <= most:
                low, below = trial, cost
            else:
                high, above = trial, cost
            if least <= cost <= most:
                break
            halve = not halve
        self.goal, self.beyond = low, high
        self.follow()

    def start(self) -> None:
        """The shrinking phase begins."""
        self.started = True
        self.follow()

    def after_step(self, *, pushing: bool = True) -> None:
        """Advance."""
        super().after_step(pushing=pushing)
        if pushing:
            self.started = True
            self.follow()

    def after_epoch(self, progress: float) -> None:
        """Look whether the setting still meets the budget."""
        if self.target is not None:
            self._find(self.target)

    def after_settling_epoch(self, progress: float) -> None:
        """The same to the end of the run."""
        self.after_epoch(1.0)

    def state_dict(self) -> dict[str, Any]:
        """Where the phase and the setting are."""
        return super().state_dict() | {"goal": self.goal, "beyond": self.beyond, "started": self.started}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.goal = None if state["goal"] is None else float(state["goal"])
        self.beyond, self.started = float(state["beyond"]), bool(state["started"])
        self.follow()


class Density(Knob[C]):
    """A method whose setting is the share of channels that each gate lets through.

    Without a budget the share is 1 - ``ratio``, or what ``aim`` asks of the groups. With one it is the same for all
    gates; they round it at different places, so that the cost does not jump.

    Attributes:
        aimed: Group -> the share that it is to keep, where ``aim`` was called.
    """

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.aimed: dict[str, float] = {}

    def on_change(self) -> None:
        """Let each gate pass as large a share of its channels as its group is to keep."""
        self.aimed = {g.name: (g.channels - g.k) / g.channels for g in self.groups}
        self.follow()

    def shares(self) -> dict[str, float]:
        """Gate -> the share of its channels that it lets pass when the phase is over."""
        if self.goal is not None:
            return dict.fromkeys(self.gates, self.goal)
        if not self.aimed:
            sources = {site.module: entry.spec.source for site, entry in self.sites.items()}
            return {name: 1 - by_pattern(self.config.ratio, (source,), 0.0) for name, source in sources.items()}
        owner = {root: group.name for group in self.coupling.groups for root in group.roots.tolist()}
        units = {site.module: self.coupling.root[self.counted(entry)].tolist() for site, entry in self.sites.items()}
        return {name: self.aimed.get(owner.get(roots[0], ""), 1.0) for name, roots in units.items()}

    def counted(self, entry: GateSite) -> Any:
        """The units of the channels that a gate chooses from."""
        return entry.own

    def channels(self, shares: Mapping[str, float]) -> dict[str, int]:
        """Gate -> how many channels pass at these shares: rounded up, at least ``min_channels``."""
        spread = self.goal is not None or self.target is not None
        numbers = {}
        for index, (site, entry) in enumerate(self.sites.items()):
            width = len(self.counted(entry))
            before = index * GOLDEN % 1 if spread else 0.0
            wanted = math.ceil(shares[site.module] * width - before - 1e-9)
            numbers[site.module] = min(max(wanted, self.config.min_channels, 1), width)
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """Also what was aimed at."""
        return super().state_dict() | {"aimed": dict(self.aimed)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        super().load_state_dict(state)
        # Last, since aim() has set the rounded shares of the groups' widths.
        self.aimed = {str(name): float(share) for name, share in state["aimed"].items()}
        self.follow()
