"""What all methods with salience generators share: gates, running saliences, checks of the forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.errors import SalienceError
from pcshrink.methods.base import Method
from pcshrink.methods.pcs.config import GeneratorConfig
from pcshrink.methods.pcs.gate import SalienceGate
from pcshrink.methods.pcs.generator import hidden_width
from pcshrink.methods.pcs.units import Units
from pcshrink.surgery.gate import Gate, GateSpec

# So low a running salience only gets by closing, or by a mean over zeros: with alpha = 0.1 over 50 batches of them and
# more. So a cut changes nothing.
LONG_DEAD = 1e-6
G = TypeVar("G", bound=GeneratorConfig)


class SalienceMethod(Method[G]):
    """Generators scale every channel; their running mean says what each is worth."""

    Config: ClassVar[type[MethodConfig]] = GeneratorConfig
    Gate: ClassVar[type[Gate]] = SalienceGate
    score_name: ClassVar[str] = "running salience"

    @classmethod
    def dead_at(cls, settings: Mapping[str, Any]) -> float:
        """The threshold."""
        return float(settings.get("threshold", GeneratorConfig.threshold))

    def __init__(self, config: G) -> None:
        super().__init__(config)
        self.units: Units
        self._selected: Tensor | None = None

    def gate_spec(self, spec: GateSpec) -> GateSpec:
        """With a generator of the configured size."""
        settings = {
            "hidden": hidden_width(spec.channels, self.config.reduction),
            "norm": self.config.generator_norm,
        }
        return replace(super().gate_spec(spec), settings=settings)

    def on_attach(self, new: set[str]) -> None:
        """Start the new generators, and line all channels up."""
        for name, gate in self.salience_gates.items():
            if name in new:
                gate.start_at(self.config.init_salience)
        number = np.full(self.coupling.ledger.count, -1)
        roots = np.concatenate([g.roots for g in self.coupling.groups])
        number[roots] = np.arange(len(roots))
        units = [torch.as_tensor(number[self.coupling.root[entry.own]]) for entry in self.sites.values()]
        self.units = Units(list(self.salience_gates.values()), units, [g.channels for g in self.coupling.groups])
        self.on_change()

    @property
    def salience_gates(self) -> dict[str, SalienceGate]:
        """The gates by layer."""
        return {name: gate for name, gate in self.gates.items() if isinstance(gate, SalienceGate)}

    def on_change(self) -> None:
        """What is pushed must be chosen again."""
        self._selected = None

    def select(self) -> Tensor:
        """The units (U,) that are pushed down: the k lowest of each group by running salience."""
        return self.units.lowest(self.units.running, [g.k for g in self.groups])

    @property
    def selected_units(self) -> Tensor:
        """``select`` until the next step or change."""
        if self._selected is None:
            self._selected = self.select()
        return self._selected

    def selected(self) -> dict[str, Tensor]:
        """Group name -> which of its channels are being pushed down (bool, (C,))."""
        return self.by_group(self.selected_units)

    def by_group(self, units: Tensor) -> dict[str, Tensor]:
        """Values of all units (U,) by group name."""
        parts = units.split(self.units.sizes)
        return {group.name: part for group, part in zip(self.groups, parts, strict=True)}

    def scores(self) -> dict[str, Tensor]:
        """The running salience, mean over a group's gates."""
        return self.by_group(self.units.running)

    def gone(self) -> dict[str, Tensor]:
        """Channels that are selected and have been at zero for long."""
        scores, selected = self.scores(), self.selected()
        return {name: selected[name] & (running <= LONG_DEAD) for name, running in scores.items()}

    def check_pass(self) -> None:
        """Make sure that the newest forward pass can be pushed on.

        Raises:
            SalienceError: There was no training forward pass since the last step, or it kept no gradient.
        """
        for name, gate in self.salience_gates.items():
            _check_record(name, gate)

    def after_step(self, *, pushing: bool = True) -> None:
        """Take the batch into the running salience; advance the schedule while pushing."""
        super().after_step(pushing=pushing)
        self.units.update_running(self.config.alpha)
        self._selected = None

    def forget_pass(self) -> None:
        """Drop what was recorded."""
        for gate in self.salience_gates.values():
            gate.batch_mean()
        self.units.restore_statistics()

    def before_step(self, *, settled: float | None) -> None:
        """Blend the gates into constants, if they are to be folded."""
        if settled is not None:
            for gate in self.salience_gates.values():
                gate.blend = settled

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        super().load_state_dict(state)
        self.units.note_statistics()
        self._selected = None


def _check_record(name: str, gate: SalienceGate) -> None:
    if not gate.recorded:
        message = (
            f"penalty() needs a forward pass in training mode first; the gate of {name!r} has seen none since "
            "the last step(). Call model.train(), run the model, then penalty()."
        )
        raise SalienceError(message)
    if torch.is_grad_enabled() and not all(s.requires_grad for s in gate.recorded):
        message = (
            f"the salience of {name!r} carries no gradient, so the penalty could not act. The forward pass ran "
            "under no_grad, in reentrant activation checkpointing (use use_reentrant=False), or the gates are frozen."
        )
        raise SalienceError(message)
