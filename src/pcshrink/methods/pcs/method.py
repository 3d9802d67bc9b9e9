"""Progressive Channel-Shrinking itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pcshrink.config import MethodConfig, Quantity
from pcshrink.errors import SalienceError
from pcshrink.methods.base import Step
from pcshrink.methods.figures import Label
from pcshrink.methods.landing import LAND_AT
from pcshrink.methods.pcs.config import PRESETS, ShrinkConfig
from pcshrink.methods.pcs.control import AHEAD
from pcshrink.methods.pcs.forecast import ramp
from pcshrink.methods.pcs.rules import (
    FASTEST,
    PAPER_RATE,
    haste,
    keep_mask,
    rate,
    shortest_push,
    steady_rate,
    travel,
    unlearned,
)
from pcshrink.methods.pcs.steering import Steered

FIRST_LOOK = 20  # steps after which a push must have been felt; a loss scaler may skip some in the beginning
AWAKE = 0.2  # salience down to which channels that are not pushed are hastened
LABELS = {
    "lambda": Label("lambda", ".2e"),
    "R": Label("R", ".2f"),
    "highest_selected": Label("highest selected", ".3f"),
}


class PCS(Steered):
    """Progressive Channel-Shrinking: a growing penalty pushes the k lowest saliences of each group to zero.

    A channel leaves only when its running salience is at zero; what the task needs stays. With a budget the rate is
    steered until what has died meets it.

    Attributes:
        lam_base: The shrinking rate that the schedule ends with.
        haste: How many times as far as the optimizer takes them the gates' biases move while pushing.
    """

    Config: ClassVar[type[MethodConfig]] = ShrinkConfig
    budget_by: ClassVar[str] = "the rate, until what has died meets it"
    reference: ClassVar[str] = "Pan et al., Progressive Channel-Shrinking Network"
    variants: ClassVar[tuple[str, ...]] = ("allocation=uniform",)  # the control of learned widths

    def __init__(self, config: ShrinkConfig) -> None:
        super().__init__(config)
        self.lam_base = config.lam or config.multiple * PAPER_RATE
        reach = travel(config.lr, config.momentum, config.optimizer)
        self.haste = haste(config.total_steps, reach)
        self.reach = self.haste * reach
        self._steady = steady_rate(config.init_salience, AHEAD * config.total_steps, self.reach)
        self._biases_before: Tensor | None = None
        self._asked = self._felt = False  # whether the penalty was made, and a gradient came back from it

    @classmethod
    def for_pretrained(cls) -> dict[str, Any]:
        """Gates near 1, and the same share of every group.

        Gates that start well below 1 change what the network computes before it has learned anything. In some hundred
        steps little is learned about what each group is worth.
        """
        return {"init_salience": 0.99, "allocation": "uniform"}

    @property
    def priced_by(self) -> Quantity | None:
        """As configured."""
        return None if self.config.price == "none" else self.config.price

    def set_prices(self, prices: Mapping[str, float]) -> None:
        """Weigh the push on each group; a channel that passes several gates pays its price once."""
        each = torch.cat([torch.full((g.channels,), float(prices[g.name])) for g in self.groups])
        self.prices = each.to(self.units.running.device) / self.units.gates_passed

    @property
    def lam(self) -> float:
        """The shrinking rate lambda(t) at the current step."""
        config = self.config
        if self.target is None or config.lam is not None:
            raised = 1.0 if config.lam is not None else unlearned(config.total_steps)
            return raised * rate(self.lam_base, self.steps, config.total_steps, config.power)
        if self.dictated:
            return config.multiple * self._steady * self.control.boost
        return self.lam_base * self.control.boost * ramp(self.progress)

    def select(self) -> Tensor:
        """The k lowest of each group, or of all groups together."""
        if self.config.scope == "group":
            return super().select()
        least = [min(self.config.min_channels, g.channels) for g in self.groups]
        return self.units.lowest_globally(self.units.running, sum(g.k for g in self.groups), least)

    def shrinking_loss(self) -> Tensor:
        """R, before it is weighted by lambda: the salience of the selected channels, mean over the batch."""
        self.check_pass()
        chosen = self.selected_units
        return self.units.loss(chosen if self.prices is None else chosen * self.prices)

    def loss(self, step: Step | None = None) -> Tensor:
        """lambda(t) R."""
        pushed = self.shrinking_loss()
        self.pushed = float(pushed.detach())
        weighed = pushed * self.lam
        self._asked = True
        self._biases_before = self._biases()
        if torch.compiler.is_compiling():
            self._felt = True  # cannot be known in compiled code
        elif not self._felt and weighed.requires_grad:
            weighed.register_hook(self._note_gradient)
        return weighed

    def _note_gradient(self, gradient: Tensor) -> None:
        self._felt = True

    def after_step(self, *, pushing: bool = True) -> None:
        """Take the batch into the running salience; steer while pushing."""
        if pushing:
            self._hasten()
        super().after_step(pushing=pushing)
        if pushing and self.steps == min(FIRST_LOOK, math.ceil(LAND_AT * self.config.total_steps)):
            self._check_push()
        if pushing and self.target is not None:
            self.steer(self.target)

    def _biases(self) -> Tensor:
        return torch.cat([gate.generator.fc2.bias.detach() for gate in self.units.gates])

    def _hasten(self) -> None:
        """Let the gates' biases go on in the direction of the optimizer's step, whatever the optimizer is."""
        before, self._biases_before = self._biases_before, None
        if before is None or self.haste == 1:
            return
        further = ((self.haste - 1) * (self._biases() - before)).clamp(-FASTEST, FASTEST)
        # What is not pushed may sink in the ranking but is not put to sleep: below 0 it could never come back.
        awake = torch.cat([gate.running for gate in self.units.gates]) > AWAKE
        pushed = self.units.spread(self.selected_units.to(further.dtype)) > 0
        further = further.where(pushed | awake, further.clamp(min=0))
        for gate, part in zip(self.units.gates, further.split(self.units.widths), strict=True):
            gate.move(part)

    def _check_push(self) -> None:
        """Stop early where nothing is pushed: with a budget, channels would be closed by force that nobody let go of.

        Raises:
            SalienceError: The penalty is not part of the loss, or the optimizer does not know the gates.
        """
        begun = f"{self.steps} steps were taken with step(), but"
        if not self._asked:
            message = (
                f"{begun} penalty() was never called. Add shrinker.penalty() to the loss; outside the shrinking "
                "phase call step(pushing=False)"
            )
            raise SalienceError(message)
        if not self._felt:
            message = f"{begun} no backward() ever went through what penalty() gave. Add it to the loss"
            raise SalienceError(message)
        if len(self._untouched()) == len(self.salience_gates):
            message = (
                f"{begun} the optimizer has not changed a single one of {len(self.salience_gates)} gates. Make it "
                "after attach_, from shrinker.param_groups(weight_decay)"
            )
            raise SalienceError(message)

    def _untouched(self) -> list[str]:
        """Gates that are as they were in the beginning."""
        start = 6 * (self.config.init_salience - 0.5)
        return [n for n, gate in self.salience_gates.items() if bool((gate.generator.fc2.bias == start).all())]

    def keep(self) -> dict[str, Tensor]:
        """What is not dead, at least ``min_channels`` and aligned; with a budget the widths it landed at."""
        if self.control.landed:
            return {name: ~chosen for name, chosen in self.selected().items()}
        config = self.config
        return {
            name: keep_mask(running, config.threshold, config.min_channels, self.align[name])
            for name, running in self.scores().items()
        }

    def asleep(self) -> dict[str, Tensor]:
        """What is dead."""
        return {name: running <= self.config.threshold for name, running in self.scores().items()}

    def highest_cut(self, keep: Mapping[str, Tensor]) -> float | None:
        """The highest running salience of a channel that goes."""
        gone = [s[~keep[name].to(s.device)] for name, s in self.scores().items() if not bool(keep[name].all())]
        return float(torch.cat(gone).max()) if gone else 0.0

    @property
    def highest_selected(self) -> float:
        """The highest running salience among the channels that are being pushed down."""
        running = self.units.running[self.selected_units]
        return float(running.max()) if running.numel() else 0.0

    def concerns(self) -> list[str]:
        """A phase that is too short for a push, and settings that a budget leaves nothing to do."""
        steps, needed = self.config.total_steps, shortest_push(self.config.power)
        idle = self._idle_settings()
        if steps >= needed:
            return idle
        end = "what is left of them is closed by force" if self.target is not None else "fewer channels will leave"
        return [
            f"the shrinking phase has {steps} steps, and channels need about {needed} to reach zero while the task can "
            f"still object; {end}. Give it more epochs",
            *idle,
        ]

    def _idle_settings(self) -> list[str]:
        config = self.config
        if self.target is None or config.lam is not None:
            return []
        because = "; with a budget or the widths of another run the rate is steered"
        idle = []
        if config.multiple != PRESETS["B"]:
            idle.append(f"strength {config.strength} is hardly more than where the rate starts from{because}")
        if config.power != ShrinkConfig.power:
            idle.append(f"power {config.power:g} has no effect{because}")
        return idle

    def diagnosis(self) -> str:
        """What was seen of the push, and what to do."""
        config, gates = self.config, self.salience_gates
        untouched = self._untouched()
        seen = (
            f"{self.steps} of {config.total_steps} steps were taken with step(), lambda reached {self.lam:.3g}, the "
            f"highest salience among the {int(self.selected_units.sum())} channels that are pushed is "
            f"{self.highest_selected:.3f} (dead is at most {config.threshold:g})"
        )
        if untouched:
            return (
                f"{seen}; the optimizer never changed the gates of {len(untouched)} of {len(gates)} layers. Make the "
                "optimizer after attach_ (shrinker.param_groups) and add shrinker.penalty() to the loss"
            )
        if self.steps == 0:
            return f"{seen}. Call shrinker.step() after every optimizer.step()"
        return (
            f"{seen}. Train longer, raise strength, or give ShrinkConfig the learning rate, momentum and optimizer "
            'you really use; plan(cut="selected") cuts the selected channels as they are'
        )

    def figures(self) -> dict[str, float]:
        """The rate, and what it has left of the selected saliences."""
        return {"lambda": self.lam, "R": self.pushed, "highest_selected": self.highest_selected}

    @classmethod
    def label(cls, key: str) -> Label:
        """The paper's names."""
        return LABELS.get(key) or super().label(key)

    def state_dict(self) -> dict[str, Any]:
        """Steps, widths, rate and how the budget steers."""
        return super().state_dict() | {"lam_base": self.lam_base, "R": self.pushed}

    def load_state_dict(self, state: Any) -> None:
        """Go on where ``state_dict`` was taken; the network may have been cut since."""
        super().load_state_dict(state)
        self.lam_base = float(state["lam_base"])
        self.pushed = float(state["R"])
