"""Read a state dict from a file into a model, safely, and say clearly what does not fit."""

from __future__ import annotations

import difflib
from pathlib import Path

from torch import Tensor, nn

from pcshrink.artifact.state_dicts import open_weights
from pcshrink.errors import CheckpointError


def load_weights_(model: nn.Module, path: Path) -> None:
    """Load a safetensors file, or a torch file without code in it, into the model.

    One layer may have another name in the file, if its shapes leave no doubt: published networks call their classifier
    ``linear``, ``fc`` or ``head``.

    Raises:
        CheckpointError: The file is missing or damaged, or its tensors do not fit the model.
    """
    own = model.state_dict()
    state = _renamed_layer(open_weights(path), own)
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    foreign = [name for name in state if name not in own]
    if missing or foreign:
        message = (
            f"{path} does not fit the model {type(model).__name__}: {len(missing)} of its tensors are missing "
            f"({', '.join(missing[:3]) or 'none'}), {len(foreign)} are unknown ({_with_nearest(foreign[:3], missing)})"
        )
        raise CheckpointError(message)
    for name, tensor in state.items():
        if tensor.shape != own[name].shape:
            wanted, got = tuple(own[name].shape), tuple(tensor.shape)
            message = f"{path} does not fit the model: {name!r} has shape {got}, the model wants {wanted}"
            raise CheckpointError(message)
    model.load_state_dict(state, strict=False)


def _renamed_layer(state: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Where just one layer has another name in the file (often the classifier), with the same shapes: its own name."""
    foreign = [name for name in state if name not in own]
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    theirs, ours = ({name.rpartition(".")[0] for name in names} for names in (foreign, missing))
    if len(theirs) != 1 or len(ours) != 1:
        return state
    old, new = f"{theirs.pop()}.", f"{ours.pop()}."
    same = {old + name.removeprefix(new): own[name].shape for name in missing}
    if same != {name: state[name].shape for name in foreign}:
        return state
    return {new + name.removeprefix(old) if name in same else name: tensor for name, tensor in state.items()}


def _with_nearest(foreign: list[str], missing: list[str]) -> str:
    """Names that the model does not know, each with the missing one that is most like it."""
    near = {name: difflib.get_close_matches(name, missing, n=1, cutoff=0.5) for name in foreign}
    return ", ".join(f"{name}, perhaps {n[0]}" if n else name for name, n in near.items()) or "none"
