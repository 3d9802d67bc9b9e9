"""Read an artifact's record and its weights, both checked against their hashes."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from pcshrink.artifact.record import Artifact
from pcshrink.artifact.store import LARGEST_RECORD, RECORD, WEIGHTS, pending, read_bytes, sha256
from pcshrink.errors import CheckpointError


def read(folder: str | Path) -> Artifact:
    """Everything about a saved model but its weights: plan, builder, input shape, metrics, versions.

    Raises:
        CheckpointError: The record is missing, damaged, hostile or from a newer version.
    """
    path = Path(folder) / RECORD
    return Artifact.from_bytes(read_bytes(path, LARGEST_RECORD), str(path))


def read_all(folder: Path) -> tuple[Artifact, dict[str, Tensor]]:
    """The record, and the weights it speaks of; from the start again if they were replaced meanwhile."""
    artifact = read(folder)
    while True:
        try:
            return artifact, _tensors(folder, artifact)
        except CheckpointError:
            newer = read(folder)
            if newer.weights_sha256 == artifact.weights_sha256:
                raise
            artifact = newer


def _tensors(folder: Path, artifact: Artifact) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = _weights(folder, artifact)
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        message = f"{folder / WEIGHTS} is not a valid safetensors file: {error}"
        raise CheckpointError(message) from error


def _weights(folder: Path, artifact: Artifact) -> bytes:
    """The bytes that have the stated hash, under their name or still waiting for it after a killed save."""
    path, waiting = folder / WEIGHTS, pending(folder, artifact.weights_sha256)
    for place in (path, waiting):
        if place.is_file() and place.stat().st_size == artifact.weights_bytes:
            data = read_bytes(place)
            if sha256(data) == artifact.weights_sha256:
                return data
    size = len(read_bytes(path))
    if size != artifact.weights_bytes:
        stated = artifact.weights_bytes
        message = f"{path} has {size} bytes, {RECORD} says {stated}: it is cut off or belongs to another save"
        raise CheckpointError(message)
    message = f"{path} does not have the hash that {RECORD} states: it is damaged or belongs to another save"
    raise CheckpointError(message)
