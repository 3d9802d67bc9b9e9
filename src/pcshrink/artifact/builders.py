"""Which builders an artifact may name: model libraries only, with arguments that fetch and open nothing."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from pcshrink.artifact.bounds import Bounds, TooLargeError
from pcshrink.artifact.record import Artifact
from pcshrink.artifact.state import SCALE, names_in_plan, slots
from pcshrink.errors import ConfigError, PlanMismatchError, ShrinkError
from pcshrink.methods.prepared import rebuild
from pcshrink.models import create
from pcshrink.models.registry import resolve
from pcshrink.surgery.cut import check_plan
from pcshrink.surgery.gate import GATE

log = logging.getLogger(__name__)
KNOWN = ("pcshrink", "timm", "torchvision")
# They choose or fetch initial weights, which the artifact's own replace.
INITIAL = re.compile(r"pretrained|weights|checkpoint|cache_dir|^model_name$|^path$|^spec$")
DRAWS = frozenset({torch.Tensor.uniform_, torch.Tensor.normal_, nn.init.kaiming_uniform_, nn.init.normal_})
NAME = re.compile(r"[A-Za-z0-9_.\-]+")


def is_known(builder: str) -> bool:
    """Whether a builder only names a model of a library, so that it is safe whoever wrote the name."""
    source, colon, name = builder.partition(":")
    return bool(colon) and source in KNOWN and NAME.fullmatch(name) is not None


def full_name(builder: str | None) -> str | None:
    """A builder with the library it is from: a file is read where other libraries may know the short name too.

    Raises:
        ConfigError: No library knows it.
    """
    if builder is not None and not isinstance(builder, str):
        message = f"builder names a model, such as 'timm:resnet18' or 'package.module:callable', got {builder!r}"
        raise ConfigError(message)
    if builder is None or ":" in builder:
        return builder
    return ":".join(resolve(builder))


def plain_arguments(builder: str | None, arguments: Mapping[str, object]) -> dict[str, Any]:
    """A builder's arguments as JSON holds them, without those that only choose initial weights."""
    if arguments and builder is None:
        message = "builder_args were given without a builder"
        raise ConfigError(message)
    wanted = {key: value for key, value in arguments.items() if not INITIAL.search(key)}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(wanted, allow_nan=False))
    except (TypeError, ValueError) as error:
        message = f"builder_args must be what JSON can hold: {error}"
        raise ConfigError(message) from error
    return plain


class _NoDraws(TorchFunctionMode):
    """Leaves out the random initial weights, which take half of the time and are all replaced."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def build(builder: str, arguments: Mapping[str, Any], *, draw: bool = True, bounds: Bounds | None = None) -> nn.Module:
    """Make the full-size model; the random state is left as it was.

    Args:
        builder: What ``create`` takes.
        arguments: For the builder.
        draw: Draw random initial weights; without, they are whatever the memory holds.
        bounds: How large it may become.

    Raises:
        ConfigError: There is no such model, or it does not take these arguments.
    """
    for name in arguments:
        if INITIAL.search(name):
            message = f"the builder argument {name!r} may not come from a file"
            raise ConfigError(message)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            if not draw:
                stack.enter_context(_NoDraws())
            if bounds is not None:
                bounds.check_arguments(arguments)
                stack.enter_context(bounds.kept())
            return create(builder, **arguments)
    except TooLargeError as error:
        message = f"{builder!r} with {dict(arguments)} is too large: {error}"
        raise TooLargeError(message) from error
    except ShrinkError:
        raise
    except Exception as error:  # a library's own complaint about its arguments
        message = f"{builder!r} cannot be made with {dict(arguments)}: {type(error).__name__}: {error}"
        raise ConfigError(message) from error


def check_builder(artifact: Artifact, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Make sure that the builder gives the network that is being saved.

    Raises:
        ConfigError: It gives another one, or cannot be used at all.
    """
    if artifact.builder is None:
        return
    fresh = skeleton(artifact.builder, artifact.builder_args)
    if artifact.prepared is not None:
        fresh = rebuild(fresh, artifact.prepared)
    plan = artifact.plan if artifact.compact else None
    try:
        if plan is not None:
            check_plan(fresh, plan)
    except PlanMismatchError as error:
        message = f"{_called(artifact)} does not make this model: {error}"
        raise ConfigError(message) from error
    expected = {name: tuple(tensor.shape) for name, _, _, tensor in slots(fresh)}
    if plan is not None:
        known = names_in_plan(fresh, plan)
        expected = {name: plan.shape_after(known.get(name, name), shape) for name, shape in expected.items()}
    own = {n: s for n, s in shapes.items() if f"{GATE}." not in n and n.rpartition(".")[2] != SCALE}
    if own != expected:
        name = next(n for n in (*own, *expected) if own.get(n) != expected.get(n))
        message = (
            f"{_called(artifact)} does not make this model: {name!r} is {own.get(name, 'missing')} in "
            f"the model, {expected.get(name, 'missing')} in what the builder makes"
        )
        raise ConfigError(message)


def _called(artifact: Artifact) -> str:
    return f"builder {artifact.builder!r} with {artifact.builder_args}"


def skeleton(builder: str, arguments: Mapping[str, object], bounds: Bounds | None = None) -> nn.Module:
    """The builder's model without values, which is quick; with values where a network cannot be made so.

    Raises:
        TooLargeError: It is larger than the bounds allow.
        ConfigError: There is no such model, or it does not take these arguments.
    """
    if is_known(builder):
        try:
            with torch.device("meta"):
                return build(builder, arguments, bounds=bounds)
        except TooLargeError:
            raise
        except ShrinkError:
            log.debug("%s cannot be made without values", builder)
    return build(builder, arguments, draw=False, bounds=bounds)
