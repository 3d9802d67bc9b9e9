"""Whether saved weights belong to a network: by names and shapes alone, so that nothing large is made for it."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor

from pcshrink.artifact.record import Artifact
from pcshrink.artifact.state import SCALE, names_in_plan, slots
from pcshrink.artifact.store import WEIGHTS
from pcshrink.errors import PlanMismatchError
from pcshrink.graph.copies import duplicate
from pcshrink.graph.model import evaluation, first_line
from pcshrink.surgery.cut import check_plan
from pcshrink.surgery.gate import GATE, GateSpec, gate_class

log = logging.getLogger(__name__)
# How torch says that a network looks at values: gates that choose, branches, lists.
NEEDS_VALUES = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.UnsupportedOperatorException,
    fake_tensor.UnsupportedFakeTensorException,
    NotImplementedError,
)
VALUES = re.compile(r"fake|meta|data.dependent|data pointer|storage|tolist|numpy|not allocated", re.IGNORECASE)


def check_fit(base: nn.Module, artifact: Artifact, saved: Mapping[str, Tensor]) -> None:
    """Compare a full-size network, cut as the artifact says, with saved tensors; either may be without values.

    Raises:
        PlanMismatchError: They differ.
    """
    plan = artifact.plan if artifact.compact else None
    if plan is not None:
        check_plan(base, plan)
    _check_gates(base, artifact, saved)
    known = names_in_plan(base, plan)
    for name, owner, leaf, tensor in slots(base):
        if f"{GATE}." in name or leaf == SCALE:
            continue
        if name not in saved:
            if leaf in owner._non_persistent_buffers_set:
                continue  # a cache that was empty when the model was saved
            message = f"{name!r} is in the network, but not in {WEIGHTS}"
            raise PlanMismatchError(message)
        expected = tuple(tensor.shape) if plan is None else plan.shape_after(known.get(name, name), tensor.shape)
        if tuple(saved[name].shape) != expected:
            message = f"{name!r} should have shape {expected}, but has {tuple(saved[name].shape)} in {WEIGHTS}"
            raise PlanMismatchError(message)


def _check_gates(base: nn.Module, artifact: Artifact, saved: Mapping[str, Tensor]) -> None:
    """Compare the gates' sizes with the weights before anything of that size is made."""
    modules = dict(base.named_modules())
    for gate in artifact.gates:
        spec = gate.spec
        for leaf, shape in _shapes(spec).items():
            tensor = saved.get(spec.prefix + leaf)
            if tensor is not None and list(tensor.shape) != shape:
                message = f"the gate of {spec.module!r} and its weights differ in size"
                raise PlanMismatchError(message)
        if spec.prefix + "mask" not in saved:
            message = f"the weights of the gate of {spec.module!r} are missing"
            raise PlanMismatchError(message)
        if spec.module not in modules or spec.source not in modules:
            message = f"there is no {spec.module!r} or no {spec.source!r} to put a gate on"
            raise PlanMismatchError(message)
    for scale in artifact.scales:
        name = f"{scale.module}.{SCALE}" if scale.module else SCALE
        if scale.module not in modules or name not in saved or saved[name].ndim != 1:
            message = f"there is no {scale.module!r} to put a constant scale on, or no {name!r}"
            raise PlanMismatchError(message)


def _shapes(spec: GateSpec) -> dict[str, list[int]]:
    try:
        return gate_class(spec.kind).shapes(spec)
    except (KeyError, TypeError, ValueError) as error:
        message = f"the gate of {spec.module!r} lacks the setting {error}, or it is no such thing"
        raise PlanMismatchError(message) from error


def check_forward(made: nn.Module, shape: tuple[int, ...] | None, full_size: Callable[[], nn.Module]) -> None:
    """Send shapes through a loaded network, where the shape of an input is known.

    Networks that cannot run without values, or that do not take one tensor, say nothing here; so the network that it
    was made from has to get through where this one does not.

    Raises:
        PlanMismatchError: The layers do not fit each other.
    """
    if shape is None:
        return
    try:
        _send_shapes(made, shape)
    except _NeedsValuesError:
        return
    except Exception as problem:  # the network is foreign: anything can be raised
        try:
            _send_shapes(full_size(), shape)
        except Exception as other:
            log.debug("shapes do not get through the network that was cut either: %s", other)
            return
        message = f"its layers do not fit each other: {type(problem).__name__}: {first_line(problem)}"
        raise PlanMismatchError(message) from problem


class _NeedsValuesError(Exception):
    """The network looks at values, so its shapes say nothing."""


def _send_shapes(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Run a network on a batch of this shape, without values; whatever it raises is raised."""
    kinds = [tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()]
    try:
        mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
        shadow = duplicate(model, {id(tensor): mode.from_tensor(tensor) for _, _, _, tensor in slots(model)})
        with mode, _unlogged(), evaluation(shadow):
            shadow(torch.empty(2, *shape, dtype=kinds[0] if kinds else None))
    except Exception as error:
        if isinstance(error, NEEDS_VALUES) or VALUES.search(str(error)):
            raise _NeedsValuesError from error
        raise


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Torch prints a page for each operation whose shapes do not fit, and then raises."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
