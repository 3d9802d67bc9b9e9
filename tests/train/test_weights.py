"""State dicts from files: one layer may have another name, everything else must fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pcshrink.errors import CheckpointError
from pcshrink.train.weights import load_weights_


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(3, 4), nn.Linear(4, 2)


def saved(folder: Path, **names: str) -> tuple[Path, dict[str, Tensor]]:
    """A file of a network whose layers have these names instead of their own."""
    state = {name: torch.randn_like(tensor) for name, tensor in Net().state_dict().items()}
    layers = {"body": "body", "fc": "fc"} | names
    file = folder / "weights.safetensors"
    save_file({f"{layers[name.split('.')[0]]}.{name.split('.')[1]}": t for name, t in state.items()}, file)
    return file, state


@pytest.mark.parametrize("name", ["fc", "linear", "head.classifier"])
def test_one_layer_may_have_another_name(name: str, tmp_path: Path) -> None:
    file, state = saved(tmp_path, fc=name)
    model = Net()
    load_weights_(model, file)
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())


def test_two_layers_with_other_names_are_refused(tmp_path: Path) -> None:
    file, _ = saved(tmp_path, fc="linear", body="trunk")
    with pytest.raises(CheckpointError, match="4 of its tensors are missing"):
        load_weights_(Net(), file)


def test_another_name_with_another_shape_is_refused(tmp_path: Path) -> None:
    model = Net()
    model.fc = nn.Linear(4, 3)
    file, _ = saved(tmp_path, fc="linear")
    with pytest.raises(CheckpointError, match=r"linear\.weight, perhaps fc\.weight|2 are unknown"):
        load_weights_(model, file)
