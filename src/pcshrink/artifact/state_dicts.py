"""Read weights that other programs saved; nothing in a file is ever executed."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcshrink.artifact.header import read_header
from pcshrink.artifact.pickles import check_pickle
from pcshrink.errors import CheckpointError

# Where training scripts put the weights, most specific first.
PLACES = (
    "state_dict",
    "model_state_dict",
    "model",
    "net",
    "module",
    "weights",
    "params",
    "state_dict_ema",
    "model_ema",
)

DEEPEST = 4  # a state_dict in a checkpoint in a checkpoint ...


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """The state_dict in a file written by ``torch.save`` or safetensors.

    A state_dict inside a checkpoint (``{"state_dict": ...}``, ``{"model": ...}`` and the like) is found, and
    the prefixes that DataParallel and ``torch.compile`` add are taken off. The file is read with
    ``weights_only=True``, always.

    Raises:
        CheckpointError: The file is missing, damaged, holds code, or holds no state_dict.

    Example:
        >>> load_weights("missing.pth")
        Traceback (most recent call last):
        pcshrink.errors.CheckpointError: missing.pth is missing
    """
    return {name: tensor.clone() for name, tensor in open_weights(path).items()}


def open_weights(path: str | Path) -> dict[str, Tensor]:
    """As ``load_weights``, but nothing is read before it is used: the tensors are the file itself, mapped.

    Raises:
        CheckpointError: The file is missing, damaged, holds code, or holds no state_dict.
    """
    path = Path(path)
    if not path.is_file():
        message = f"{path} {'is not a file' if path.exists() else 'is missing'}"
        raise CheckpointError(message)
    content = _safetensors(path) if path.suffix == ".safetensors" else _torch(path)
    weights = _state_dict(content)
    if weights is None:
        keys = ", ".join(map(str, list(content)[:8])) if isinstance(content, Mapping) else type(content).__name__
        message = f"{path} holds no state_dict; it holds {keys}. Save model.state_dict() with torch.save."
        raise CheckpointError(message)
    for name, tensor in weights.items():
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            message = f"{path}: {name!r} of shape {tuple(tensor.shape)} has fewer values than it claims"
            raise CheckpointError(message)
    return _plain(weights)


def _torch(path: Path) -> Any:
    try:
        check_pickle(path)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # the file is foreign: whatever reading it raises means that it is not usable
        # torch advises to read the file without its safeguard; only what it found is of use here.
        reason = str(error).partition("WeightsUnpickler error:")[2] or str(error)
        first = (reason.strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]
        message = (
            f"{path} cannot be read as weights: {first}. It is damaged, or holds objects other "
            "than tensors; such files are never opened. Save model.state_dict() instead of the model."
        )
        raise CheckpointError(message) from error


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    read_header(path)
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        message = f"{path} is not a valid safetensors file: {error}"
        raise CheckpointError(message) from error


def _state_dict(content: object, depth: int = 0) -> dict[str, Tensor] | None:
    if not isinstance(content, Mapping) or not content or depth > DEEPEST:
        return None
    if all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()):
        return dict(content)
    for place in PLACES:
        if place in content and (inner := _state_dict(content[place], depth + 1)) is not None:
            return inner
    tensors = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
    # state_dicts with some extra state in them, but not a checkpoint that happens to hold one tensor
    return tensors if len(tensors) * 2 > len(content) else None


def _plain(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes of wrappers: those around the whole model, and ``_orig_mod`` anywhere."""
    names = {name: [part for part in name.split(".") if part != "_orig_mod"] for name in weights}
    while all(len(parts) > 1 and parts[0] == "module" for parts in names.values()):
        names = {name: parts[1:] for name, parts in names.items()}
    return {".".join(names[name]): tensor for name, tensor in weights.items()}
