"""Read an artifact's record and its weights, both checked against their hashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from pcshrink.artifact.header import read_header
from pcshrink.artifact.record import Artifact
from pcshrink.artifact.store import (
    LARGEST_RECORD,
    RECORD,
    WEIGHTS,
    folder_at,
    pending,
    read_bytes,
    sha256,
    sha256_of,
    size_of,
)
from pcshrink.errors import CheckpointError, ShrinkError

LARGEST_TO_HASH = 1 << 30  # what does not fit is not worth minutes to tell whether it is damaged as well


def read(folder: str | Path) -> Artifact:
    """Everything about a saved model but its weights: plan, builder, input shape, metrics, versions.

    Raises:
        CheckpointError: The record is missing, damaged, hostile or from a newer version.
    """
    path = folder_at(folder) / RECORD
    return Artifact.from_bytes(read_bytes(path, LARGEST_RECORD), str(path))


def read_all(folder: Path, check: Callable[[Artifact, dict[str, Tensor]], None]) -> tuple[Artifact, dict[str, Tensor]]:
    """The record, and the weights it speaks of; from the start again if they were replaced meanwhile.

    Args:
        folder: The artifact.
        check: Called with the record and with tensors without values, before any weights are read; may refuse them.
    """
    artifact = read(folder)
    while True:
        try:
            return artifact, _tensors(folder, artifact, check)
        except CheckpointError:
            newer = read(folder)
            if newer.weights_sha256 == artifact.weights_sha256:
                raise
            artifact = newer


def _tensors(
    folder: Path, artifact: Artifact, check: Callable[[Artifact, dict[str, Tensor]], None]
) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = _weights(folder, artifact, check)
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        message = f"{folder / WEIGHTS} is not a valid safetensors file: {error}"
        raise CheckpointError(message) from error


def _weights_at(place: Path, artifact: Artifact, check: Callable[[Artifact, dict[str, Tensor]], None]) -> bytes | None:
    """The bytes of a file if they are those that the record speaks of."""
    stated = artifact.weights_bytes
    if not place.is_file() or size_of(place) != stated:
        return None
    try:
        check(artifact, read_header(place))
    except ShrinkError:
        if stated > LARGEST_TO_HASH or sha256_of(place) == artifact.weights_sha256:
            raise
        return None  # it is not what the record speaks of, so what it says does not matter
    data = read_bytes(place)
    return data if sha256(data) == artifact.weights_sha256 else None


def _weights(folder: Path, artifact: Artifact, check: Callable[[Artifact, dict[str, Tensor]], None]) -> bytes:
    """The bytes that have the stated hash, still waiting for their name after a killed save, or under it."""
    path, stated = folder / WEIGHTS, artifact.weights_bytes
    for place in (pending(folder, artifact.weights_sha256), path):
        try:
            data = _weights_at(place, artifact, check)
        except ShrinkError:
            if place.is_file():
                raise
            continue  # it got its name meanwhile
        if data is not None:
            return data
    size = size_of(path)
    if size != stated:
        message = f"{path} has {size} bytes, {RECORD} says {stated}: it is cut off or belongs to another save"
        raise CheckpointError(message)
    message = f"{path} does not have the hash that {RECORD} states: it is damaged or belongs to another save"
    raise CheckpointError(message)
