"""What a budget adds to a push: it steers the rate, fixes the widths, and closes what is left of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pcshrink.methods.base import Target
from pcshrink.methods.landing import opening, wanted
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.control import AHEAD, Control, on_the_way
from pcshrink.methods.pcs.forecast import Firmness, enough_push, held_by_task, needed_push, ramp, ramp_ahead
from pcshrink.methods.pcs.rules import FASTEST, SLOPE
from pcshrink.methods.pcs.salience import SalienceMethod

STEER_EVERY = 10  # steps
STUBBORN = 0.5  # power of a salience that counts as left where widths are dictated; a channel half-way is hardly gone
GENTLE = 0.3  # of the paper's rate: where a budget starts from


class Steered(SalienceMethod[ShrinkConfig]):
    """Saliences that are pushed down at a rate which a budget steers.

    Attributes:
        lam_base: The rate without any steering.
        reach: How far a steady gradient of 1 on a bias moves it at each step.
        prices: What weighs the push on each unit (U,), if anything does.
        target: The budget, if there is one.
        control: How the budget steers the rate.
        firmness: How the task resists at the moment.
        least: With a budget: the fewest channels each group may keep; the widths themselves where they are dictated.
        channels: With a budget: how many channels all groups had in the beginning.
    """

    lam_base: float
    reach: float

    def __init__(self, config: ShrinkConfig) -> None:
        super().__init__(config)
        self.prices: Tensor | None = None
        self.target: Target | None = None
        self.control = Control()
        self.firmness = Firmness()
        self.least: dict[str, int] = {}
        self.channels = 0

    @property
    def lam(self) -> float:
        """The shrinking rate lambda(t) at the current step."""
        raise NotImplementedError

    def set_target(self, target: Target) -> None:
        """Meet a budget: by widths that are learned, or by the same share of every group."""
        self.target = target
        if self.steps:
            return  # the run goes on with a network that was cut
        self.channels = sum(group.channels for group in self.groups)
        if self.dictated:
            self.least = target.widths()
            self.aim(self._next())
            return
        self.least = target.floors(self._share)
        self.control.boost = GENTLE
        self.aim(self.least)

    @property
    def _share(self) -> float:
        return 0.0 if isinstance(self.config.ratio, Mapping) else self.config.ratio

    @property
    def dictated(self) -> bool:
        """Widths do not follow from what channels turn out to be worth."""
        return self.config.allocation == "uniform" or isinstance(self.config.ratio, Mapping)

    def steer(self, target: Target) -> None:
        """After a step of the push: correct the rate, fix the widths in time, close what must go."""
        due = self.steps % STEER_EVERY == 0
        if self.dictated and due and not self.control.landed:
            self.control.steer(self.progress, self._removed(target), STEER_EVERY / self.config.total_steps)
            self.aim(self._next())
        elif not self.dictated:
            self._follow_forecast(target, due=due)
        met = due and not self.control.landed and target.cost(self.alive()) <= target.limit
        if met or self.control.lands(self.progress):
            self._land(target)
        if self.control.landed:
            self._close()

    def _follow_forecast(self, target: Target, *, due: bool) -> None:
        self.control.pushed += SLOPE * min(SLOPE * self.reach * self.lam, FASTEST)
        if due and not self.control.landed:
            elapsed = STEER_EVERY / self.config.total_steps
            as_before = self.control.boost * ramp(self.progress - elapsed) / ramp(self.progress)
            self.control.follow(self._enough(target), elapsed, as_before)

    def _next(self) -> dict[str, int]:
        """Where widths are dictated: those to push for now, which is what should be left a little later."""
        share = wanted(self.progress + AHEAD)
        return on_the_way(share, {group.name: group.channels for group in self.groups}, self.least, self.channels)

    def _worth(self) -> dict[str, Tensor]:
        return {name: worth.cpu() for name, worth in self.by_group(self.units.worth).items()}

    def _removed(self, target: Target) -> float:
        """Which share of what must leave is gone; a channel half pushed down is hardly gone at all."""
        whole = self.config.init_salience
        left = {n: float((running / whole).clamp(max=1).pow(STUBBORN).sum()) for n, running in self.scores().items()}
        return (target.dense - target.cost(left)) / (target.dense - target.limit)

    def _enough(self, target: Target) -> float:
        """The boost at which the forecast meets the budget."""
        running, whole = self.units.running, self.config.init_salience
        price = torch.ones_like(running) if self.prices is None else self.prices
        held = held_by_task(running, whole, self.control.pushed * price, self.progress)
        alive = self.selected_units & (running > self.config.threshold)
        self.firmness.look(
            float(running[alive].sum()), self.control.pushed * float(price[alive].mean()), int(alive.sum()),
            float(held[alive].mean()), self.progress,
        )  # fmt: skip
        needed = needed_push(running, held * self.firmness.factor, self.progress) / price
        needed = needed.where(self.selected_units, torch.inf).where(running > self.config.threshold, 0.0)

        def meets(leave: Tensor) -> bool:
            left = {name: max(int((~gone).sum()), 1) for name, gone in self.by_group(leave).items()}
            return target.cost(left) <= target.limit

        alone = SLOPE * SLOPE * self.reach * self.lam_base * self.config.total_steps
        return enough_push(needed, meets) / (alone * ramp_ahead(self.progress))

    def alive(self) -> dict[str, int]:
        """How many channels of each group are not dead."""
        threshold = self.config.threshold
        return {name: max(int((s > threshold).sum()), 1) for name, s in self.scores().items()}

    def _land(self, target: Target) -> None:
        """Fix the widths; let go of what stays."""
        self.control.landed = True
        self.aim(self.least if self.dictated else target.widths(self._worth(), self.least))
        asleep = ~self.selected_units & (self.units.running <= self.config.threshold)
        places = self.units.spread(asleep.to(torch.float32)) > 0
        for gate, part in zip(self.units.gates, places.split(self.units.widths), strict=True):
            if bool(part.any()):
                gate.reopen(part.nonzero().flatten())

    def _close(self) -> None:
        """Bring what must go and is still alive down to zero."""
        factor = opening(self.progress)
        if factor >= 1.0:
            return
        places = self.units.spread(self.selected_units.to(torch.float32))
        for gate, part in zip(self.units.gates, places.split(self.units.widths), strict=True):
            gate.close(part, factor)

    def state_dict(self) -> dict[str, Any]:
        """Steps, widths and how the budget steers."""
        steering = {"control": self.control.state_dict(), "firmness": self.firmness.state_dict()}
        return super().state_dict() | steering | {"least": dict(self.least), "channels": self.channels}

    def load_state_dict(self, state: Any) -> None:
        """Go on where ``state_dict`` was taken; the network may have been cut since."""
        super().load_state_dict(state)
        self.control.load_state_dict(state["control"])
        self.firmness = Firmness(**state["firmness"])
        self.least = {str(name): int(width) for name, width in state["least"].items()}
        self.channels = int(state["channels"])
