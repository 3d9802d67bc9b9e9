"""Save a model with the plan it was cut by."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pcshrink.artifact.builders import check_builder, full_name, plain_arguments
from pcshrink.artifact.record import Artifact
from pcshrink.artifact.state import frozen, gate_states, scale_states, take_apart, volatile
from pcshrink.artifact.store import WEIGHTS, folder_at, replace_artifact, sha256
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import CheckpointError, ConfigError, PlanMismatchError
from pcshrink.graph.images import check_images
from pcshrink.graph.model import check_finite, unwrap
from pcshrink.methods.prepared import mark_of
from pcshrink.surgery.gate import GATE
from pcshrink.surgery.plan import PrunePlan, require_plan

LIBRARIES = ("pcshrink", "torch", "safetensors", "timm", "torchvision")


def save(
    dir: str | Path,
    model: nn.Module,
    plan: PrunePlan | None,
    builder: str | None = None,
    *,
    builder_args: Mapping[str, object] | None = None,
    input_shape: Sequence[int] | None = None,
    metrics: Mapping[str, object] | None = None,
    preprocessing: Preprocessing | None = None,
) -> Path:
    """Write a model into a folder: ``pcshrink.json`` and ``model.safetensors``.

    Interrupted, it leaves the old artifact or the new one, whole. Other files in the folder stay.

    Args:
        dir: The folder; it is made if need be.
        model: The compact model, with gates or folded, or the gated (maybe masked) full-size model.
        plan: What it was cut by; None for a model that was never cut.
        builder: How the full-size model is made, as ``pcshrink.models.create`` takes it (``timm:resnet18``,
            ``torchvision:vgg16``, ``pcshrink:resnet20``). With it the artifact loads by itself, without it
            ``load`` wants a fresh full-size model.
        builder_args: Arguments for the builder, for example ``{"num_classes": 10}``.
        input_shape: One input sample without the batch axis; by default that of the preprocessing.
        metrics: Anything JSON can hold.
        preprocessing: How images become the model's input, and the names of its classes, so that it travels with them.

    Returns:
        The folder.

    Raises:
        CheckpointError: The folder or a tensor cannot be written.
        ConfigError: The builder does not make this model, an argument is not plain data, or the images do not fit.
        PlanMismatchError: The plan belongs to another model.
        VerificationError: The model holds numbers that are not finite.
    """
    base, folder, plan = unwrap(model), folder_at(dir), None if plan is None else require_plan(plan)
    check_finite(base)
    tensors, tied = take_apart(base)
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    shapes |= {alias: shapes[name] for alias, name in tied.items()}
    artifact = Artifact(
        plan=plan,
        compact=_is_compact(shapes, plan),
        builder=full_name(builder),
        builder_args=plain_arguments(builder, builder_args or {}),
        model_class=f"{type(base).__module__}.{type(base).__qualname__}",
        input_shape=_shape(base, input_shape, preprocessing),
        preprocessing=preprocessing,
        metrics=_plain(metrics or {}, "metrics"),
        versions=versions(),
        tied=tied,
        volatile=volatile(base),
        frozen=frozen(base),
        gates=gate_states(base),
        scales=scale_states(base),
        prepared=mark_of(base),
    )
    check_builder(artifact, shapes)
    return _commit(folder, artifact, tensors)


def _shape(
    model: nn.Module, given: Sequence[int] | None, preprocessing: Preprocessing | None
) -> tuple[int, ...] | None:
    """What the network is fed, as it is given or as the preprocessing says; all three must belong together."""
    if preprocessing is not None and not isinstance(preprocessing, Preprocessing):
        message = f"preprocessing must be a pcshrink.data.Preprocessing, got {type(preprocessing).__name__}"
        raise ConfigError(message)
    if preprocessing is not None:
        check_images(model, preprocessing)
    if given is None:
        return preprocessing.input_size if preprocessing is not None else None
    if not isinstance(given, Sequence) or not all(type(n) is int and n > 0 for n in given):
        message = f"input_shape must be the sizes of one sample, such as (3, 224, 224), got {given!r}"
        raise ConfigError(message)
    if preprocessing is not None and tuple(given) != tuple(preprocessing.input_size):
        message = f"input_shape is {tuple(given)}, but preprocessing makes images of {preprocessing.input_size}"
        raise ConfigError(message)
    return tuple(given)


def _commit(folder: Path, artifact: Artifact, tensors: dict[str, Tensor]) -> Path:
    weights = _serialize(tensors, folder)
    digest = sha256(weights)
    artifact = dataclasses.replace(artifact, weights_bytes=len(weights), weights_sha256=digest)
    replace_artifact(folder, artifact.to_bytes(), weights, digest)
    return folder


def _serialize(tensors: dict[str, Tensor], folder: Path) -> bytes:
    from safetensors import SafetensorError
    from safetensors.torch import save as serialize

    try:
        return serialize(tensors)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"{folder / WEIGHTS} cannot hold this model: {error}"
        raise CheckpointError(message) from error


def _is_compact(shapes: Mapping[str, tuple[int, ...]], plan: PrunePlan | None) -> bool:
    """Whether the plan is applied already; an error if the model is neither before nor after the cut."""
    if plan is None:
        return False
    whole, cut = True, True
    for name, before in plan.shapes.items():
        if name not in shapes:
            if f"{GATE}." in name:
                continue
            message = (
                f"the plan belongs to another model: it cuts {name!r}, which this model does not have. "
                "Save a model before its norms are folded into its convolutions; export folds them."
            )
            raise PlanMismatchError(message)
        after = plan.shape_after(name, before)
        whole, cut = whole and list(shapes[name]) == before, cut and shapes[name] == after
        if not whole and not cut:
            message = (
                f"the plan belongs to another model: {name!r} has shape {shapes[name]}, with this plan "
                f"it would be {tuple(before)} before and {after} after the cut"
            )
            raise PlanMismatchError(message)
    return cut


def _plain(value: Mapping[str, object], what: str) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        message = f"{what} must be what JSON can hold (finite numbers, text, lists, dicts): {error}"
        raise ConfigError(message) from error
    return copied


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that a result depends on."""
    numbers = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            numbers[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return numbers
