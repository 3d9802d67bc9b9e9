"""Load a saved model: by itself, or into the user's own network. All or nothing, and without tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.artifact.bounds import Bounds
from pcshrink.artifact.builders import build, is_known, skeleton
from pcshrink.artifact.fitting import check_fit, check_forward
from pcshrink.artifact.reading import read_all
from pcshrink.artifact.record import Artifact, GateState
from pcshrink.artifact.state import SCALE, slots
from pcshrink.artifact.store import RECORD, WEIGHTS, folder_at
from pcshrink.errors import CheckpointError, ConfigError, NoSitesError, PlanMismatchError, ShrinkError
from pcshrink.graph.copies import duplicate
from pcshrink.graph.model import unwrap
from pcshrink.methods.prepared import rebuild
from pcshrink.methods.registry import bring_gates
from pcshrink.surgery.cut import correct_
from pcshrink.surgery.fold import ConstantScale
from pcshrink.surgery.gate import GATE, gate_class
from pcshrink.surgery.gates import add_gates_, remove_gates_


def load(dir: str | Path, model: nn.Module | None = None, *, trust_builder: bool = False) -> nn.Module:
    """The model that ``save`` wrote, bit for bit, in evaluation mode and on the CPU.

    Args:
        dir: The folder.
        model: A fresh full-size network to cut and fill, where the artifact names no builder; the result is a
            copy, and what was passed stays as it is.
        trust_builder: Also run a builder of your own (``package.module:callable``) that the file names.

    Raises:
        CheckpointError: A file is missing, damaged, hostile or from a newer version; the message names it.
        PlanMismatchError: The model that was passed is not the one the artifact was made from.
    """
    source = _Source(folder_at(dir), None if model is None else unwrap(model), trust_builder)
    artifact, tensors = read_all(source.folder, source.check)
    _tie(source.folder, artifact, tensors)
    with source.named_errors(artifact):
        base = source.base(artifact, tensors)
        made = _rebuild(base, artifact, tensors, own=model is None or artifact.prepared is not None)
        check_forward(made, artifact.input_shape, lambda: source.full_size(artifact, tensors))
    return made


class _Source:
    """Where the full-size network comes from: the user, or the builder that an artifact names."""

    def __init__(self, folder: Path, own: nn.Module | None, trusted: bool) -> None:
        self.folder, self._own, self._trusted = folder, own, trusted
        self._built: nn.Module | None = None

    def check(self, artifact: Artifact, saved: dict[str, Tensor]) -> None:
        """Refuse weights that do not fit, by their shapes, before they are read.

        Raises:
            CheckpointError: The record is damaged or hostile, or what it names does not fit the weights.
            PlanMismatchError: They do not fit the user's network.
        """
        _bring_gates(self.folder, artifact)
        _tie(self.folder, artifact, saved)
        with self.named_errors(artifact):
            if self._own is not None:
                check_fit(self.full_size(artifact, saved), artifact, saved)
            elif self._may_build(artifact):
                base = skeleton(self._builder(artifact), artifact.builder_args, Bounds(saved, artifact.plan))
                base = self._prepared(base, artifact)
                check_fit(base, artifact, saved)
                values = not any(tensor.is_meta for _, _, _, tensor in slots(base))
                self._built = base if values else None

    def base(self, artifact: Artifact, saved: dict[str, Tensor]) -> nn.Module:
        """The full-size network, which changes only if it is our own."""
        return self.full_size(artifact, saved) if self._built is None else self._built

    def full_size(self, artifact: Artifact, saved: dict[str, Tensor]) -> nn.Module:
        """The full-size network as it was before the cut."""
        if self._own is not None:
            return self._own if artifact.prepared is None else self._prepared(duplicate(self._own), artifact)
        bounds = Bounds(saved, artifact.plan) if self._may_build(artifact) else None
        return self._prepared(
            build(self._builder(artifact), artifact.builder_args, draw=False, bounds=bounds), artifact
        )

    def _prepared(self, base: nn.Module, artifact: Artifact) -> nn.Module:
        """Give a network of our own the layers that a method had made of it."""
        if artifact.prepared is None:
            return base
        remove_gates_(base)
        try:
            return rebuild(base, artifact.prepared)
        except (ConfigError, NoSitesError) as error:
            method = artifact.prepared["method"][:40]
            message = f"{self.folder / RECORD}: the layers that {method!r} made cannot be made: {error}"
            raise CheckpointError(message) from error

    def _may_build(self, artifact: Artifact) -> bool:
        """Whether the builder only names a library's model; code that is trusted has no bounds."""
        return is_known(self._builder(artifact))

    def _builder(self, artifact: Artifact) -> str:
        record = self.folder / RECORD
        if artifact.builder is None:
            message = f"{record} names no builder; pass a fresh {artifact.model_class} (model=..., --model)"
            raise CheckpointError(message)
        if not self._trusted and not is_known(artifact.builder):
            message = (
                f"{record} wants to run {artifact.builder[:80]!r}, not a model of pcshrink, timm or torchvision. "
                "Pass the network (model=..., --model), or say that you trust the file (trust_builder=True, --trust)."
            )
            raise CheckpointError(message)
        return artifact.builder

    @contextlib.contextmanager
    def named_errors(self, artifact: Artifact) -> Iterator[None]:
        """Whatever goes wrong in here has to do with these files; say so, and which."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # a hostile record can make foreign code raise anything
            reason = str(error) if isinstance(error, ShrinkError) else f"{type(error).__name__}: {error}"
            if self._own is not None:
                kind = type(self._own).__name__
                message = (
                    f"{self.folder} does not fit into this {kind}; it was made from {artifact.model_class}: {reason}"
                )
                raise PlanMismatchError(message) from error
            message = (
                f"{self.folder / RECORD} and {self.folder / WEIGHTS} do not fit the network that {artifact.builder!r} "
                f"makes (saved with {artifact.versions}): {reason}"
            )
            raise CheckpointError(message) from error


def _tie(folder: Path, artifact: Artifact, tensors: dict[str, Tensor]) -> None:
    """Put tensors that have several names under all of them."""
    for alias, name in artifact.tied.items():
        if name not in tensors or alias in tensors:
            message = f"{folder / RECORD} is damaged: {alias!r} cannot stand for {name!r}"
            raise CheckpointError(message)
        tensors[alias] = tensors[name]


def _bring_gates(folder: Path, artifact: Artifact) -> None:
    kinds = {gate.spec.kind for gate in artifact.gates}
    bring_gates(kinds)
    try:
        for kind in kinds:
            gate_class(kind)
    except ConfigError as error:
        message = f"{folder / RECORD}: {error}; import the module that defines this gate before loading"
        raise CheckpointError(message) from error


def _rebuild(base: nn.Module, artifact: Artifact, tensors: dict[str, Tensor], *, own: bool) -> nn.Module:
    """A copy of the network with the saved tensors in it; the network itself may change only if it is our own."""
    plan = artifact.plan if artifact.compact else None
    check_fit(base, artifact, tensors)
    fixed = set(artifact.frozen)
    memo: dict[int, Tensor] = {}
    for name, _, leaf, tensor in slots(base):
        if f"{GATE}." not in name and leaf != SCALE and name in tensors:
            memo.setdefault(id(tensor), _as(tensor, tensors[name], name not in fixed))
    with torch.random.fork_rng(devices=[]):
        made: nn.Module = base if own else duplicate(base, dict(memo))
        if not own:
            remove_gates_(made)
        if plan is not None:
            correct_(made, plan)
        _put_gates(made, artifact.gates)
        _put_scales(made, artifact, tensors)
    _fill(made, artifact, tensors)
    return made.eval()


def _as(old: Tensor, new: Tensor, trained: bool) -> Tensor:
    return _parameter(new, trained) if isinstance(old, nn.Parameter) else new


def _parameter(values: Tensor, trained: bool) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=trained and (values.is_floating_point() or values.is_complex()))


def _put_gates(made: nn.Module, states: tuple[GateState, ...]) -> None:
    if not states:
        return
    gates = add_gates_(made, [state.spec for state in states])
    for state in states:
        gate = gates[state.spec.module]
        for name, value in state.switches.items():
            if name not in gate.SWITCHES:
                message = f"the gate of {state.spec.module!r} has no switch {name!r}"
                raise PlanMismatchError(message)
            setattr(gate, name, value)


def _put_scales(made: nn.Module, artifact: Artifact, tensors: dict[str, Tensor]) -> None:
    for scale in artifact.scales:
        layer, constant = made.get_submodule(scale.module), ConstantScale(scale.axis)
        layer.register_buffer(SCALE, tensors[f"{scale.module}.{SCALE}" if scale.module else SCALE])
        if scale.at_input:
            layer.register_forward_pre_hook(constant.before)
        else:
            layer.register_forward_hook(constant.after)


def _fill(made: nn.Module, artifact: Artifact, tensors: dict[str, Tensor]) -> None:
    """Put every tensor at every name it is known by, so that ties are as they were."""
    fixed, hidden = set(artifact.frozen), set(artifact.volatile)
    places: dict[int, nn.Parameter] = {}
    modules: dict[str, Any] = dict(made.named_modules(remove_duplicate=False))
    for name, new in tensors.items():
        path, _, leaf = name.rpartition(".")
        owner = modules.get(path)
        if owner is None or leaf not in (*owner._parameters, *owner._buffers):
            message = f"{name!r} is in {WEIGHTS}, but not in the network"
            raise PlanMismatchError(message)
        if leaf in owner._parameters:
            old = owner._parameters[leaf]
            if old is not None and f"{GATE}." in name and old.shape != new.shape:
                message = f"{name!r} should have shape {tuple(old.shape)}, but has {tuple(new.shape)}"
                raise PlanMismatchError(message)
            if id(new) not in places:
                is_there = old is not None and old.data_ptr() == new.data_ptr() and old.shape == new.shape
                places[id(new)] = old if is_there and old is not None else _parameter(new, name not in fixed)
            owner._parameters[leaf] = places[id(new)]
            continue
        owner._buffers[leaf] = new
        (owner._non_persistent_buffers_set.add if name in hidden else owner._non_persistent_buffers_set.discard)(leaf)
