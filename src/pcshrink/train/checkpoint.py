"""Checkpoints: nested plain data with tensors in one safetensors file, written atomically, the last two kept."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pcshrink.common.files import staged
from pcshrink.errors import CheckpointError

VERSION = 2
KEEP = 2
_TENSOR = "__tensor__"
_NAME = re.compile(r"checkpoint-(\d{10})\.safetensors")


def save_state(path: Path, state: dict[str, object]) -> None:
    """Write nested dicts and lists of plain data and tensors.

    Raises:
        CheckpointError: The file cannot be written, or a number in it is not finite.
    """
    tensors: dict[str, Tensor] = {}
    plain = _split(state, tensors, "")
    text = json.dumps(plain)
    metadata = {"version": str(VERSION), "state": text, "sha256": _digest(text, tensors)}
    with staged(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # a full disk, for example
            message = f"{path} cannot be written: {error}; what was there before is unchanged"
            raise CheckpointError(message) from error


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    """A hash over everything in a file, so that no damage passes unnoticed."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _split(value: object, tensors: dict[str, Tensor], where: str) -> Any:
    if isinstance(value, Tensor):
        if value.is_floating_point() and not bool(value.isfinite().all()):
            message = f"{where[1:]} holds numbers that are not finite; nothing was saved"
            raise CheckpointError(message)
        tensors[where[1:]] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: where[1:]}
    if isinstance(value, dict):
        return {str(k): _split(v, tensors, f"{where}/{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_split(v, tensors, f"{where}/{i}") for i, v in enumerate(value)]
    return value


def load_state(path: Path) -> dict[str, Any]:
    """Read what ``save_state`` wrote.

    Raises:
        CheckpointError: The file is missing, damaged or from another version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("version") != str(VERSION):
                message = f"{path} is not a checkpoint of version {VERSION}"
                raise CheckpointError(message)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            if _digest(metadata["state"], tensors) != metadata["sha256"]:
                message = f"{path} is damaged: its content does not have the hash it states"
                raise CheckpointError(message)
            state = _join(json.loads(metadata["state"]), tensors.__getitem__)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        message = f"the checkpoint {path} is damaged: {error}"
        raise CheckpointError(message) from error
    return dict(state)


def _join(value: object, read: Callable[[str], Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_TENSOR}:
            return read(value[_TENSOR])
        return {k: _join(v, read) for k, v in value.items()}
    return [_join(v, read) for v in value] if isinstance(value, list) else value


class Checkpoints:
    """The numbered checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def written(self) -> list[Path]:
        """All complete checkpoints, newest last."""
        if not self.folder.is_dir():
            return []
        return sorted(p for p in self.folder.iterdir() if _NAME.fullmatch(p.name))

    def save(self, step: int, state: dict[str, object]) -> Path:
        """Write one and remove all but the last two."""
        path = self.folder / f"checkpoint-{step:010d}.safetensors"
        save_state(path, state)
        for old in self.written()[:-KEEP]:
            old.unlink(missing_ok=True)
        return path

    def load(self, tell: Callable[[str], None] | None = None) -> dict[str, Any] | None:
        """The newest checkpoint that is whole; None if there is none at all.

        Args:
            tell: Told about damaged ones that are passed over.

        Raises:
            CheckpointError: There are checkpoints, but all are damaged.
        """
        problems = []
        for path in reversed(self.written()):
            try:
                state = load_state(path)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            if problems and tell is not None:
                tell(f"{'; '.join(problems)}. Going back to {path.name}.")
            return state
        if problems:
            raise CheckpointError("; ".join(problems))
        return None

    def newest(self) -> dict[str, Any]:
        """The newest checkpoint.

        Raises:
            CheckpointError: There is none.
        """
        state = self.load()
        if state is None:
            message = f"there is no checkpoint in {self.folder}"
            raise CheckpointError(message)
        return state


def random_state() -> dict[str, Any]:
    """The state of torch's generators."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = list(torch.cuda.get_rng_state_all())
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Put ``random_state`` back."""
    torch.set_rng_state(state["cpu"].to(torch.uint8))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([s.to(torch.uint8) for s in state["cuda"]])
