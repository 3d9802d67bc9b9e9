"""Files that ask for more than they bring: refused by size and shape, before anything large is read or made."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.artifact import load, load_weights, save
from pcshrink.artifact.record import HEAD
from pcshrink.artifact.store import RECORD, WEIGHTS, sha256
from pcshrink.errors import CheckpointError, ShrinkError

pytestmark = pytest.mark.unit

EXAMPLE = torch.zeros(2, 3, 8, 8)


class Twice(nn.Module):
    """A layer that is known by two names, as tied embeddings are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.again = self.first
        self.last = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.again(x))))


class TiedLanguageModel(nn.Module):
    """The head's weights are the embedding's, so the stream between them is cut in both or in neither."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.inner, self.outer = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, words: Tensor) -> Tensor:
        stream = self.embedding(words)
        return self.head(stream + self.outer(torch.relu(self.inner(stream))))


def fresh(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))


def save_half(model: nn.Module, folder: Path, example: Tensor = EXAMPLE) -> nn.Module:
    shrinker = pcs.attach_(model, example)
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    small = pcs.compact(model, plan, example)
    save(folder, small, plan, input_shape=tuple(example.shape[1:]))
    return small


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_half(fresh(), tmp_path / "saved")
    return tmp_path / "saved"


def rewrite(folder: Path, **entries: Any) -> None:
    """Change a record as somebody would who can compute hashes; a callable gets the entry that is there."""
    content = json.loads((folder / RECORD).read_text())
    content.pop("sha256")
    for key, value in entries.items():
        content[key] = value(content[key]) if callable(value) else value
    body = b'",' + json.dumps(content, indent=1).encode()[1:] + b"\n"
    (folder / RECORD).write_bytes(HEAD + sha256(body).encode() + body)


def test_weights_of_another_size_are_not_read(saved: Path) -> None:
    with (saved / WEIGHTS).open("r+b") as file:
        file.truncate(1 << 42)  # sparse: reading it would take the memory of ten machines
    with pytest.raises(CheckpointError, match=f"has {1 << 42} bytes"):
        load(saved, model=fresh())


def test_weights_that_are_as_large_as_stated_are_compared_before_they_are_read(saved: Path) -> None:
    numbers = 1 << 38
    entry = {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}
    header = json.dumps({"0.weight": entry}).encode()
    with (saved / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * numbers)
    rewrite(saved, weights=lambda entry: entry | {"bytes": 8 + len(header) + 4 * numbers})
    with pytest.raises(ShrinkError, match="does not fit into this Sequential"):
        load(saved, model=fresh())


@pytest.mark.parametrize(
    ("builder", "arguments"),
    [
        ("timm:vit_tiny_patch16_224", {"depth": 10**7}),
        ("timm:test_vit", {"depth": 4096}),
        ("timm:test_vit", {"embed_dim": 3 << 20}),
        ("torchvision:squeezenet1_1", {"num_classes": 10**12}),
        ("pcshrink:resnet20", {"num_classes": 10**9}),
    ],
)
def test_networks_stop_growing_where_their_weights_end(saved: Path, builder: str, arguments: dict[str, Any]) -> None:
    rewrite(saved, builder=builder, builder_args=arguments)
    with pytest.raises(CheckpointError, match=RECORD):
        load(saved)


def pack(path: Path, parts: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in parts.items():
            archive.writestr(f"archive/{name}", data)


def test_a_zip_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pth"
    pack(path, {"data.pkl": pickle.dumps({}), "data/0": bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match=r"would unpack from \d+ to 1000\d+ bytes"):
        load_weights(path)


@pytest.mark.parametrize("between", [b"", b"N"])  # a tuple of a tuple of ..., alone and beside a None
@pytest.mark.parametrize("legacy", [False, True])
def test_keys_that_nest_without_end(tmp_path: Path, between: bytes, legacy: bool) -> None:
    path, wrap = tmp_path / "deep.pth", between + (b"\x86" if between else b"\x85")
    data = b"\x80\x02})" + wrap * 1_000_000 + b"Ns."
    path.write_bytes(data) if legacy else pack(path, {"data.pkl": data})
    with pytest.raises(CheckpointError, match="nests more than 100 levels"):
        load_weights(path)


def test_checkpoints_in_checkpoints(tmp_path: Path) -> None:
    content: Any = {"w": torch.zeros(1)}
    for _ in range(60):
        content = {"model": content}
    torch.save(content, tmp_path / "inner.pth")
    with pytest.raises(CheckpointError, match="holds no state_dict"):
        load_weights(tmp_path / "inner.pth")


def test_a_tensor_larger_than_its_values(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(1 << 40)}, tmp_path / "wide.pth")
    with pytest.raises(CheckpointError, match="has fewer values than it claims"):
        load_weights(tmp_path / "wide.pth")


@pytest.mark.parametrize("legacy", [False, True])
def test_ordinary_weights_are_read(tmp_path: Path, legacy: bool) -> None:
    state = fresh().state_dict()
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=not legacy)
    found = load_weights(tmp_path / "a.pth")
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_layers_that_do_not_fit_each_other_are_found_by_their_shapes(saved: Path) -> None:
    def change(plan: dict[str, Any]) -> dict[str, Any]:
        plan["attributes"].setdefault("3", {}).update(groups=2)
        return plan

    rewrite(saved, plan=change)
    with pytest.raises(ShrinkError, match="do not fit each other"):
        load(saved, model=fresh())


def test_a_tensor_with_two_names_is_cut_under_both(tmp_path: Path) -> None:
    torch.manual_seed(0)
    small = save_half(Twice(), tmp_path).eval()
    made: Any = load(tmp_path, model=Twice())
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(made(images), small(images))
    assert made.first is made.again
    assert made.first.weight.shape[0] == 4


def test_a_tied_language_model_is_cut_on_both_sides(tmp_path: Path) -> None:
    torch.manual_seed(0)
    words = torch.randint(0, 20, (2, 7))
    small = save_half(TiedLanguageModel(), tmp_path, words).eval()
    made: Any = load(tmp_path, model=TiedLanguageModel())
    assert torch.equal(made(words), small(words))
    assert made.head.weight is made.embedding.weight
    assert made.head.weight.shape == (20, 8)
