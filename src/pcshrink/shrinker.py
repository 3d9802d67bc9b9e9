"""What a training loop holds: attach, penalty, step, plan, mask."""

from __future__ import annotations

import fnmatch
import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.config import ShrinkConfig
from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.errors import ConfigError, PlanMismatchError, SalienceError
from pcshrink.graph.foreign import forget_compiled
from pcshrink.graph.model import unwrap
from pcshrink.methods import select
from pcshrink.methods.pcs import rules as schedule
from pcshrink.methods.pcs.gate import Gate
from pcshrink.methods.pcs.rules import keep_mask
from pcshrink.methods.pcs.units import Roster
from pcshrink.proof.discover import discover
from pcshrink.surgery.cut import check_plan
from pcshrink.surgery.gates import add_gates_, find_gates, remove_gates_
from pcshrink.surgery.mask import mask_gate_
from pcshrink.surgery.plan import GATE, PrunePlan, gate_specs, make_plan

log = logging.getLogger(__name__)


class Group:
    """Channels that leave together, as a user sees them.

    Attributes:
        name: The first layer that writes these channels.
        channels: How many there are.
        writers: The layers whose output channels they are.
        readers: The layers whose input channels they are.
        k: How many of them are pushed down; may be changed between steps.
        gates: The layers that carry the group's gates.
    """

    def __init__(self, source: ChannelGroup, roster: Roster, start: int, k: int) -> None:
        self.name = source.name
        self.channels = source.channels
        self.writers = source.writers
        self.readers = source.readers
        self.gates = tuple(site.module for site in source.sites)
        self.k = k
        self._roster, self._start = roster, start

    @property
    def running(self) -> Tensor:
        """The running salience (C,), mean over the group's gates."""
        return self._roster.running[self._start : self._start + self.channels]

    def __repr__(self) -> str:
        """Name, width and writers."""
        return f"Group({self.name!r}, channels={self.channels}, k={self.k}, writers={list(self.writers)})"


def attach_(model: nn.Module, example_input: Any, config: ShrinkConfig | None = None) -> Shrinker:
    """Put salience gates on everything in a model that can shrink.

    The model keeps its class, its names and its outputs' shapes; every group was proven on a copy before this returns.

    Args:
        model: Any module; it is changed in place.
        example_input: A tensor, or a tuple of arguments, as the model's forward takes them. A list holds several such
            examples, for code that branches on size or batch: every group is proven on all of them.
        config: The settings; the defaults push half of the channels of every group.

    Raises:
        NoSitesError: Nothing can shrink, or a pattern matches nothing.
        TraceError: The model does not run on the example input.

    >>> import torch, pcshrink as pcs
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    >>> pcs.attach_(net, torch.randn(2, 3, 16, 16)).groups
    [Group('0', channels=8, k=4, writers=['0'])]
    """
    config = config or ShrinkConfig()
    if not isinstance(config, ShrinkConfig):  # users pass dicts
        message = f"config must be a ShrinkConfig, got {type(config).__name__}"
        raise ConfigError(message)
    base = unwrap(model)
    coupling = discover(base, example_input, config)
    shrinker = Shrinker(base, coupling, config)
    log.info("%d groups with %d channels can shrink, %d layers stay whole", len(coupling.groups),
             sum(g.channels for g in coupling.groups), len(coupling.refused))  # fmt: skip
    return shrinker


def detach_(model: nn.Module) -> nn.Module:
    """Take every gate off again: the original model with its original state_dict keys, weights as trained."""
    remove_gates_(unwrap(model))
    forget_compiled()
    return model


class Shrinker:
    """Holds the groups of one model and drives them; made by ``attach_``.

    Attributes:
        model: The gated model.
        groups: The groups that shrink.
        refused: Module name -> why its output channels stay.
        steps: Optimizer steps taken so far.
        lam_base: The shrinking rate that the schedule ends with.
        align: What kept widths are multiples of, measured if the settings say "auto".
        specs: For each place of a gate how it is built, the units of its channels, and those of its source.
    """

    def __init__(self, model: nn.Module, coupling: Coupling, config: ShrinkConfig) -> None:
        self.model, self.coupling, self.config = model, coupling, config
        specs = gate_specs(coupling, config.reduction, config.generator_norm)
        present = find_gates(model)
        self.specs = {
            site: (present[spec.module].spec if spec.module in present else spec, own, fed)
            for site, (spec, own, fed) in specs.items()
        }
        gates = add_gates_(model, [spec for spec, _, _ in self.specs.values()], config.init_salience)
        self.gates = {site.module: gates[site.module] for site in self.specs}
        self.align = _alignment(config)
        self.roster = self._make_roster()
        starts = np.cumsum([0, *self.roster.sizes])
        self.groups = [
            Group(group, self.roster, int(start), self._k(group))
            for group, start in zip(coupling.groups, starts, strict=False)
        ]
        self.refused = dict(coupling.refused)
        self.steps = 0
        self.lam_base = config.lam or schedule.base_rate(
            config.multiple, config.total_steps, config.lr, config.momentum, config.power
        )
        self._selected: Tensor | None = None
        if config.method == "truncate":
            self._truncate()

    def _make_roster(self) -> Roster:
        number = np.full(self.coupling.ledger.count, -1)
        roots = np.concatenate([g.roots for g in self.coupling.groups])
        number[roots] = np.arange(len(roots))
        units = [torch.as_tensor(number[self.coupling.root[own]]) for _, own, _ in self.specs.values()]
        return Roster(list(self.gates.values()), units, [g.channels for g in self.coupling.groups])

    def aim(self, keep: Mapping[str, int]) -> None:
        """Set how many channels the groups are to keep, by name; a group that is not named keeps all it has."""
        for group in self.groups:
            group.k = max(group.channels - keep.get(group.name, group.channels), 0)
        self._selected = None
        if self.config.method == "truncate":
            self._truncate()

    def _truncate(self) -> None:
        """The ablation: the lowest entries of every gate are cut in the forward pass."""
        share = {name: g.k / g.channels for g in self.groups for name in g.gates}
        for name, gate in self.gates.items():
            gate.truncated = round(share[name] * gate.spec.channels) or None

    def _k(self, group: ChannelGroup) -> int:
        ratio = self._ratio(group.writers)
        return select.count(ratio, group.channels, self.config.min_channels, self.align) if ratio else 0

    def _ratio(self, writers: tuple[str, ...]) -> float:
        if not isinstance(self.config.ratio, Mapping):
            return self.config.ratio
        for pattern, ratio in self.config.ratio.items():
            if any(fnmatch.fnmatchcase(w, pattern) for w in writers):
                return ratio
        return 0.0

    @property
    def lam(self) -> float:
        """The shrinking rate lambda(t) at the current step."""
        return schedule.rate(self.lam_base, self.steps, self.config.total_steps, self.config.power)

    def selected(self) -> dict[str, Tensor]:
        """Group name -> which of its channels are being pushed down (bool, (C,)), by the running salience."""
        parts = self._selected_units().split(self.roster.sizes)
        return {group.name: part for group, part in zip(self.groups, parts, strict=True)}

    def _selected_units(self) -> Tensor:
        if self._selected is None:
            running, ks = self.roster.running, [g.k for g in self.groups]
            if self.config.method == "lasso":
                self._selected = torch.ones_like(running, dtype=torch.bool)
            elif self.config.scope == "global":
                least = [min(self.config.min_channels, g.channels) for g in self.groups]
                self._selected = self.roster.lowest_globally(running, sum(ks), least)
            else:
                self._selected = self.roster.lowest(running, ks)
        return self._selected

    def shrinking_loss(self) -> Tensor:
        """R, before it is weighted: the salience of the selected channels of all gates, mean over the batch.

        Raises:
            SalienceError: There was no training forward pass since the last step, or it kept no gradient.
        """
        for name, gate in self.gates.items():
            _check_record(name, gate)
        by_input = self.config.policy == "input" and self.config.method == "shrink"
        return self.roster.loss([g.k for g in self.groups] if by_input else self._selected_units())

    def penalty(self) -> Tensor:
        """lambda(t) R: add it to the task loss after the forward pass of every training step."""
        loss = self.shrinking_loss()
        return loss * (0.0 if self.config.method == "truncate" else self.lam)

    def step(self) -> None:
        """Take the batch into the running salience and advance the schedule; call it after ``optimizer.step()``."""
        self.roster.update_running(self.config.alpha)
        self.steps += 1
        self._selected = None

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Parameters for an optimizer: matrices with weight decay; biases, norms and other vectors without."""
        decayed: list[nn.Parameter] = []
        plain: list[nn.Parameter] = []
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                (decayed if parameter.ndim > 1 else plain).append(parameter)
        return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]

    def plan(self, keep: Mapping[str, Tensor] | None = None) -> PrunePlan:
        """What stays: by default the channels whose running salience is above the threshold.

        Args:
            keep: Group name -> bool tensor, True = the channel stays; groups not named stay whole.
        """
        if keep is None:
            keep = {g.name: self.keep(g) for g in self.groups}
        known = {g.name: g for g in self.groups}
        flags = {}
        for name, mask in keep.items():
            if name not in known:
                message = f"no group is called {name!r}; the groups are {', '.join(known)}"
                raise PlanMismatchError(message)
            flag = np.asarray(torch.as_tensor(mask).cpu(), dtype=bool)
            if flag.shape != (known[name].channels,) or not flag.any():
                width = known[name].channels
                message = f"keep[{name!r}] must mark at least one of {width} channels, got shape {flag.shape}"
                raise PlanMismatchError(message)
            flags[name] = flag
        shapes = {n: tuple(t.shape) for n, t in (*self.model.named_parameters(), *self.model.named_buffers())}
        return make_plan(self.coupling, shapes, self.specs, flags)

    def keep(self, group: Group) -> Tensor:
        """Which channels of a group would stay if it were cut now (C,)."""
        if self.config.method == "truncate":
            return ~select.lowest(group.running, group.k)
        return keep_mask(group.running, self.config.threshold, self.config.min_channels, self.align)

    def mask_(self, plan: PrunePlan) -> None:
        """Force the plan's dead channels to zero in the gated model, from now on: the "masked" model."""
        check_plan(self.model, plan)
        gates = find_gates(self.model)
        for spec in plan.gates:
            prefix = f"{spec.module}.{GATE}." if spec.module else f"{GATE}."
            if spec.module not in gates:
                message = f"the plan belongs to another model: there is no gate at {spec.module!r}"
                raise PlanMismatchError(message)
            own, fed = (plan.tensors[prefix + key][0] for key in ("mask", "input_mask"))
            mask_gate_(gates[spec.module], own, fed)

    def unmask_(self) -> None:
        """Take the mask off again."""
        for gate in self.gates.values():
            gate.masked = False

    def state_dict(self) -> dict[str, Any]:
        """Step and settings; the running saliences are in the model's own state_dict."""
        return {"steps": self.steps, "lam_base": self.lam_base, "config": self.config.to_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; load the model's state_dict as well."""
        saved = ShrinkConfig.from_dict(state["config"])
        if saved != self.config:
            changed = [k for k, v in saved.to_dict().items() if v != self.config.to_dict()[k]]
            message = f"the saved settings differ in {', '.join(changed)}; attach with the same ShrinkConfig"
            raise ConfigError(message)
        self.steps, self.lam_base = int(state["steps"]), float(state["lam_base"])
        self._selected = None

    def report(self) -> str:
        """Every layer: the group that it writes to, or why it must stay whole."""
        rows = []
        for group in self.groups:
            dead = int((group.running <= self.config.threshold).sum())
            state = f"{group.channels} channels, k = {group.k}, dead {dead}"
            rows.append(f"{group.name}: {state}; written by {', '.join(group.writers)}")
        rows += [f"{name}: stays whole: {reason}" for name, reason in self.refused.items()]
        return "\n".join(rows)


def _alignment(config: ShrinkConfig) -> int:
    if config.align != "auto":
        return config.align
    from pcshrink.measure.widths import measure_alignment

    return measure_alignment("onnxruntime" if importlib.util.find_spec("onnxruntime") else "eager", threads=1)


def _check_record(name: str, gate: Gate) -> None:
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


__all__ = ["Group", "Shrinker", "attach_", "detach_"]
