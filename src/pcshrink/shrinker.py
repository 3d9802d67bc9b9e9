"""What a training loop holds: attach, penalty, step, plan, mask."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.errors import CheckpointError, ConfigError, EmptyPlanError, PlanMismatchError, SalienceError
from pcshrink.graph.foreign import forget_compiled
from pcshrink.graph.model import named_tensors, unwrap
from pcshrink.methods.base import Method, Step
from pcshrink.methods.group import Group
from pcshrink.methods.registry import method_for
from pcshrink.methods.select import by_pattern
from pcshrink.surgery.cut import apply_plan, check_plan
from pcshrink.surgery.gates import find_gates, remove_gates_
from pcshrink.surgery.mask import mask_
from pcshrink.surgery.plan import PrunePlan, make_plan

log = logging.getLogger(__name__)


def attach_(model: nn.Module, example_input: object, config: MethodConfig | None = None) -> Shrinker:
    """Put gates on everything in a model that can shrink.

    The model keeps its class, its names and its outputs' shapes; every group was proven on a copy before this returns.

    Args:
        model: Any module; it is changed in place.
        example_input: A tensor, or a tuple of arguments, as the model's forward takes them. A list holds several such
            examples, for code that branches on size or batch: every group is proven on all of them.
        config: The settings of a method; by default ``ShrinkConfig()``, the paper's method with half of the channels.

    Raises:
        NoSitesError: Nothing can shrink, or a pattern matches nothing.
        TraceError: The model does not run on the example input.

    >>> import torch, pcshrink as pcs
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    >>> pcs.attach_(net, torch.randn(2, 3, 16, 16)).groups
    [Group('0', channels=8, k=4, writers=['0'])]
    """
    if torch.is_inference_mode_enabled():
        message = "attach_ cannot work in torch.inference_mode(): nothing made there can be trained; call it outside"
        raise ConfigError(message)
    if config is None:
        from pcshrink.methods.pcs.config import ShrinkConfig

        config = ShrinkConfig()
    method = method_for(config)
    base = method.prepare(unwrap(model), example_input)
    coupling = method.couple(base, example_input)
    _check_alignment(config, coupling)
    shrinker = Shrinker(base, coupling, method)
    log.info("%d groups with %d channels can shrink, %d layers stay whole", len(coupling.groups),
             sum(g.channels for g in coupling.groups), len(coupling.refused))  # fmt: skip
    return shrinker


def detach_(model: nn.Module) -> nn.Module:
    """Take every gate off again: the original model with its original state_dict keys, weights as trained."""
    remove_gates_(unwrap(model))
    forget_compiled()
    return model


class Shrinker:
    """Holds the groups of one model and drives them by a method; made by ``attach_``.

    Attributes:
        model: The gated model.
        method: Decides what leaves.
        config: Its settings.
        refused: Module name -> why its output channels stay.
    """

    def __init__(self, model: nn.Module, coupling: Coupling, method: Method[Any]) -> None:
        self.model, self.coupling, self.method = model, coupling, method
        self.config: MethodConfig = method.config
        method.attach(model, coupling, _alignment(self.config))
        self.refused = coupling.refused | method.refused

    @property
    def groups(self) -> list[Group]:
        """The groups that shrink."""
        return self.method.groups

    def dense(self) -> nn.Module:
        """A copy of the network as it would be without gates and without layers that the method made of its own."""
        copied = apply_plan(self.model, PrunePlan({}, {}, {}, {}, {}, ()))
        remove_gates_(copied)
        return self.method.undo(copied)

    @property
    def steps(self) -> int:
        """Steps taken in the shrinking phase."""
        return self.method.steps

    def selected(self) -> dict[str, Tensor]:
        """Group name -> which of its channels are on their way out (bool, (C,))."""
        return self.method.selected()

    @property
    def align(self) -> dict[str, int]:
        """What kept widths are multiples of, by group; measured if the settings say "auto"."""
        return self.method.align

    def aim(self, keep: Mapping[str, int]) -> None:
        """Set how many channels the groups are to keep, by name; a group that is not named keeps all it has.

        Raises:
            ConfigError: A name is unknown, or a number is impossible.
        """
        widths = {g.name: g.channels for g in self.groups}
        if isinstance(keep, Mapping) and set(keep) <= set(widths):  # of other mistakes the method itself complains
            for name, width in keep.items():
                if is_number(width) and width > widths[name]:
                    message = f"group {name!r} has {widths[name]} channels, so it cannot keep {width}"
                    raise ConfigError(message)
        self.method.aim(keep)

    def penalty(self, step: Step | None = None) -> Tensor:
        """What the method adds to the task loss; call it after the forward pass of every training step.

        Args:
            step: What is known about the step, for methods that look at it.

        Raises:
            SalienceError: There was no training forward pass since the last step, or it kept no gradient.
        """
        loss = self.method.loss(step)
        return next(self.model.parameters()).new_zeros(()) if loss is None else loss

    def step(self, *, pushing: bool = True) -> None:
        """Take the batch into account and advance; call it after ``optimizer.step()``.

        Args:
            pushing: The shrinking phase is on, so the method's schedule advances. False before and after it.

        Raises:
            ConfigError: ``pushing`` is neither True nor False.
        """
        if not isinstance(pushing, bool):
            message = f"pushing must be True or False, got {pushing!r}"
            raise ConfigError(message)
        self.method.after_step(pushing=pushing)

    def settle(self, share: float | None) -> None:
        """Make the gates more constant, so that folding them does not change what the network has learned.

        Call it before each step of the settling phase, with a share that grows from 0 to 1 and then stays there.

        Args:
            share: How much of each gate is its running mean instead of what it says of the input; 1 = constant. None
                leaves the gates as they are: a step outside of the settling phase.

        Raises:
            ConfigError: The share is not a number from 0 to 1.
        """
        if share is not None and not (is_number(share) and 0 <= share <= 1):
            message = f"share must be a number from 0 (free gates) to 1 (constant gates), got {share!r}"
            raise ConfigError(message)
        self.method.before_step(settled=None if share is None else float(share))

    def param_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Parameters for an optimizer: matrices with weight decay; biases, norms and other vectors without."""
        return split_parameters(self.model, weight_decay)

    def plan(self, keep: Mapping[str, Tensor] | None = None, *, cut: Literal["dead", "selected"] = "dead") -> PrunePlan:
        """What stays: by default what the method keeps, which for shrinking is everything that is not dead.

        Args:
            keep: Group name -> bool tensor, True = the channel stays; groups not named stay whole.
            cut: "selected" also cuts the k lowest channels of each group that are still alive.

        Raises:
            EmptyPlanError: Nothing would leave; the message says what was seen and what to do.
            SalienceError: What the channels are ranked by is not finite.
            PlanMismatchError: ``keep`` does not fit the groups.
        """
        if cut not in ("dead", "selected"):
            message = f'cut must be "dead" or "selected", got {cut!r}'
            raise ConfigError(message)
        if keep is None:
            keep = self._keep(cut)
        if not isinstance(keep, Mapping):
            message = f"keep gives a mask for each group by name, got {type(keep).__name__}"
            raise PlanMismatchError(message)
        known = {g.name: g for g in self.groups}
        flags = {}
        for name, mask in keep.items():
            if name not in known:
                message = f"no group is called {name!r}; the groups are {', '.join(known)}"
                raise PlanMismatchError(message)
            marks = torch.as_tensor(mask).cpu()
            if marks.dtype != torch.bool and not bool(((marks == 0) | (marks == 1)).all()):
                message = f"keep[{name!r}] must be True for every channel that stays, not a list of indices or shares"
                raise PlanMismatchError(message)
            flag = marks.bool().numpy()
            if flag.shape != (known[name].channels,) or not flag.any():
                width = known[name].channels
                message = f"keep[{name!r}] must mark at least one of {width} channels, got shape {flag.shape}"
                raise PlanMismatchError(message)
            if not (self.method.static or flag.all()):
                message = (
                    f"method {self.config.method} chooses for each input, so no channel can be cut for all of them"
                )
                raise ConfigError(message)
            flags[name] = flag
        shapes = {n: tuple(t.shape) for n, t in named_tensors(self.model).items()}
        return make_plan(self.coupling, shapes, self.method.sites, flags)

    def _keep(self, cut: str) -> Mapping[str, Tensor]:
        bad = [name for name, scores in self.method.scores().items() if not bool(scores.isfinite().all())]
        if bad:
            message = f"the running values of {', '.join(bad[:4])} are not finite, so nothing can be chosen by them"
            raise SalienceError(message)
        if cut == "dead":
            keep = self.method.keep()
        else:
            keep = {name: ~chosen for name, chosen in self.method.selected().items()}
        if all(bool(mask.all()) for mask in keep.values()) and self.method.static:
            message = f"nothing would leave: {self.method.diagnosis()}"
            raise EmptyPlanError(message)
        return keep

    def mask_(self, plan: PrunePlan) -> None:
        """Force the plan's dead channels to zero in the gated model, from now on: the "masked" model."""
        check_plan(self.model, plan)
        mask_(self.model, plan)

    def unmask_(self) -> None:
        """Take the mask off again."""
        for gate in self.method.gates.values():
            gate.masked = False

    def state_dict(self) -> dict[str, Any]:
        """The method's state and settings; tensors of the gates are in the model's own state_dict."""
        return {
            "method": self.config.method, "state": self.method.state_dict(), "config": self.config.to_dict(),
            "channels": {g.name: g.channels for g in self.groups},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; load the model's state_dict as well.

        Raises:
            CheckpointError: This is not the state of a shrinker.
            ConfigError: It was made with other settings, or for another network.
        """
        parts = {"method": str, "state": Mapping, "config": Mapping}
        given = state if isinstance(state, Mapping) else {}
        wrong = sorted(name for name, kind in parts.items() if not isinstance(given.get(name), kind))
        if wrong:
            got = f"{list(given)[:5]}" if given else type(state).__name__
            message = f"this is not the state of a shrinker: {', '.join(wrong)} missing or damaged, got {got}"
            raise CheckpointError(message)
        mine, saved = {"method": self.config.method, **self.config.to_dict()}, state["config"]
        changed = [k for k, v in {"method": state["method"], **saved}.items() if v != mine.get(k)]
        if changed:
            message = f"the saved settings differ in {', '.join(changed)}; attach with the same settings"
            raise ConfigError(message)
        channels = {g.name: g.channels for g in self.groups}
        if dict(state.get("channels", channels)) != channels:  # states of earlier versions do not say
            message = "this is the state of a shrinker on another network: its groups have other widths"
            raise ConfigError(message)
        try:
            self.method.load_state_dict(state["state"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"this state of a shrinker is damaged: {type(error).__name__}: {error}"
            raise CheckpointError(message) from error

    def report(self) -> str:
        """Every layer: the group that it writes to, or why it must stay whole."""
        gone = self.method.gone()
        rows = []
        for group in self.groups:
            state = f"{group.channels} channels, k = {group.k}, dead {int(gone[group.name].sum())}"
            rows.append(f"{group.name}: {state}; written by {', '.join(group.writers)}")
        rows += [f"{name}: stays whole: {reason}" for name, reason in self.refused.items()]
        return "\n".join(rows)

    def __repr__(self) -> str:
        """Method, groups and channels."""
        channels = sum(g.channels for g in self.groups)
        model = type(self.model).__name__
        return f"Shrinker({model}, method={self.config.method!r}, groups={len(self.groups)}, channels={channels})"


def split_parameters(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters for an optimizer: matrices with weight decay; biases, norms and other vectors without."""
    if not is_number(weight_decay) or weight_decay < 0:
        message = f"weight_decay must be a number of at least 0, got {weight_decay!r}"
        raise ConfigError(message)
    trained = [p for p in model.parameters() if p.requires_grad]
    spared = {id(p) for gate in find_gates(model).values() if not gate.DECAYED for p in gate.parameters()}
    decayed = [p.ndim > 1 and id(p) not in spared for p in trained]
    return [
        {"params": [p for p, yes in zip(trained, decayed, strict=True) if yes], "weight_decay": weight_decay},
        {"params": [p for p, yes in zip(trained, decayed, strict=True) if not yes], "weight_decay": 0.0},
    ]


def _check_alignment(config: MethodConfig, coupling: Coupling) -> None:
    """Refuse an alignment that no group is large enough for; groups that were cut already may well be smaller."""
    if not config.prove or config.align == "auto" or not coupling.groups:
        return
    if not isinstance(config.align, Mapping):
        _check_step("align", config.align, coupling.groups)
        return
    deciding = {pattern: pattern for pattern in config.align}  # the first that matches a group
    for pattern, step in config.align.items():
        groups = [group for group in coupling.groups if by_pattern(deciding, group.writers, "") == pattern]
        if not groups:
            writers = ", ".join(writer for group in coupling.groups for writer in group.writers)
            message = (
                f"align[{pattern!r}] is for no layer that shrinks, or an earlier pattern matches them all (the first "
                f"one holds); these shrink: {writers}"
            )
            raise ConfigError(message)
        _check_step(f"align[{pattern!r}]", step, groups)


def _check_step(name: str, step: int, groups: Sequence[ChannelGroup]) -> None:
    largest = max(group.channels for group in groups)
    if step > largest:
        message = f"{name} {step} has no effect: the largest group has {largest} channels; take 8 or 16"
        raise ConfigError(message)


def _alignment(config: MethodConfig) -> int | Mapping[str, int]:
    if config.align != "auto":
        return config.align
    from pcshrink.measure.widths import auto_alignment

    return auto_alignment()


__all__ = ["Group", "Shrinker", "attach_", "detach_"]
