"""Load a saved model: by itself, or into the user's own network. All or nothing, and without tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.artifact.builders import build, is_known
from pcshrink.artifact.reading import read_all
from pcshrink.artifact.record import Artifact, GateState
from pcshrink.artifact.state import slots
from pcshrink.artifact.store import RECORD, WEIGHTS
from pcshrink.errors import CheckpointError, ConfigError, PlanMismatchError, ShrinkError
from pcshrink.graph.model import duplicate, unwrap
from pcshrink.methods.registry import bring_gates
from pcshrink.surgery.cut import check_plan, correct_
from pcshrink.surgery.fold import ConstantScale
from pcshrink.surgery.gate import GATE, GateSpec, gate_class
from pcshrink.surgery.gates import add_gates_, remove_gates_
from pcshrink.surgery.plan import PrunePlan

SCALE = "pcs_scale"


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
    folder = Path(dir)
    artifact, tensors = read_all(folder)
    _bring_gates(folder, artifact)
    for alias, name in artifact.tied.items():
        if name not in tensors or alias in tensors:
            message = f"{folder / RECORD} is damaged: {alias!r} cannot stand for {name!r}"
            raise CheckpointError(message)
        tensors[alias] = tensors[name]
    if model is not None:
        base = unwrap(model)
        try:
            return _rebuild(base, artifact, tensors)
        except PlanMismatchError as error:
            own = type(base).__name__
            message = f"{folder} does not fit into this {own}; it was made from {artifact.model_class}: {error}"
            raise PlanMismatchError(message) from error
    base = _build(folder, artifact, trust_builder)
    try:
        return _rebuild(base, artifact, tensors, own=True)
    except (ShrinkError, RuntimeError, MemoryError) as error:
        message = (
            f"{folder / RECORD} and {folder / WEIGHTS} do not fit the network that {artifact.builder!r} "
            f"makes (saved with {artifact.versions}): {error}"
        )
        raise CheckpointError(message) from error


def _bring_gates(folder: Path, artifact: Artifact) -> None:
    kinds = {gate.spec.kind for gate in artifact.gates}
    bring_gates(kinds)
    try:
        for kind in kinds:
            gate_class(kind)
    except ConfigError as error:
        message = f"{folder / RECORD}: {error}; import the module that defines this gate before loading"
        raise CheckpointError(message) from error


def _build(folder: Path, artifact: Artifact, trusted: bool) -> nn.Module:
    record = folder / RECORD
    if artifact.builder is None:
        message = f"{record} names no builder; pass a fresh {artifact.model_class}: load(..., model=...)"
        raise CheckpointError(message)
    if not trusted and not is_known(artifact.builder):
        message = (
            f"{record} wants to run {artifact.builder[:80]!r}, not a model of pcshrink, timm or torchvision. "
            "Pass the network (model=...), or trust_builder=True if you trust the file."
        )
        raise CheckpointError(message)
    try:
        return build(artifact.builder, artifact.builder_args, draw=False)
    except ConfigError as error:
        message = f"{record}: {error}"
        raise CheckpointError(message) from error


def _rebuild(base: nn.Module, artifact: Artifact, tensors: dict[str, Tensor], *, own: bool = False) -> nn.Module:
    """A copy of the network with the saved tensors in it; the network itself may change only if it is our own."""
    plan = artifact.plan if artifact.compact else None
    if plan is not None:
        check_plan(base, plan)
    _check_gates(base, artifact, tensors)
    fixed = set(artifact.frozen)
    memo: dict[int, Tensor] = {}
    for name, owner, leaf, tensor in slots(base):
        if f"{GATE}." in name or leaf == SCALE:
            continue
        if name not in tensors:
            if leaf in owner._non_persistent_buffers_set:
                continue  # a cache that was empty when the model was saved
            message = f"{name!r} is in the network, but not in {WEIGHTS}"
            raise PlanMismatchError(message)
        _check_shape(name, tensor, tensors[name], plan)
        memo.setdefault(id(tensor), _as(tensor, tensors[name], name not in fixed))
    try:
        with torch.random.fork_rng(devices=[]):
            made: nn.Module = base if own else duplicate(base, dict(memo))
            if not own:
                remove_gates_(made)
            if plan is not None:
                correct_(made, plan)
            _put_gates(made, artifact.gates)
            _put_scales(made, artifact, tensors)
    except (AttributeError, TypeError, IndexError) as error:
        message = f"{type(error).__name__}: {error}"
        raise PlanMismatchError(message) from error
    _fill(made, artifact, tensors)
    return made.eval()


def _as(old: Tensor, new: Tensor, trained: bool) -> Tensor:
    return _parameter(new, trained) if isinstance(old, nn.Parameter) else new


def _parameter(values: Tensor, trained: bool) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=trained and (values.is_floating_point() or values.is_complex()))


def _check_shape(name: str, fresh: Tensor, saved: Tensor, plan: PrunePlan | None) -> None:
    expected = tuple(fresh.shape) if plan is None else plan.shape_after(name, fresh.shape)
    if tuple(saved.shape) != expected:
        message = f"{name!r} should have shape {expected}, but has {tuple(saved.shape)} in {WEIGHTS}"
        raise PlanMismatchError(message)


def _check_gates(base: nn.Module, artifact: Artifact, tensors: dict[str, Tensor]) -> None:
    """Compare the gates' sizes with the weights before anything of that size is made."""
    modules = dict(base.named_modules())
    for gate in artifact.gates:
        spec = gate.spec
        for leaf, shape in _shapes(spec).items():
            saved = tensors.get(spec.prefix + leaf)
            if saved is not None and list(saved.shape) != shape:
                message = f"the gate of {spec.module!r} and its weights differ in size"
                raise PlanMismatchError(message)
        if spec.prefix + "mask" not in tensors:
            message = f"the weights of the gate of {spec.module!r} are missing"
            raise PlanMismatchError(message)
        if spec.module not in modules or spec.source not in modules:
            message = f"there is no {spec.module!r} or no {spec.source!r} to put a gate on"
            raise PlanMismatchError(message)
    for scale in artifact.scales:
        name = f"{scale.module}.{SCALE}" if scale.module else SCALE
        if scale.module not in modules or name not in tensors or tensors[name].ndim != 1:
            message = f"there is no {scale.module!r} to put a constant scale on, or no {name!r}"
            raise PlanMismatchError(message)


def _shapes(spec: GateSpec) -> dict[str, list[int]]:
    try:
        return gate_class(spec.kind).shapes(spec)
    except KeyError as error:
        message = f"the gate of {spec.module!r} lacks the setting {error}"
        raise PlanMismatchError(message) from error


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
