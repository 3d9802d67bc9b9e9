"""Damaged, hostile and half-written files: an error that names the file, nothing run, nothing half loaded."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.artifact import load, load_weights, save
from pcshrink.artifact import store as files
from pcshrink.artifact.record import HEAD, Artifact
from pcshrink.errors import CheckpointError, ShrinkError

pytestmark = [pytest.mark.unit, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

RECORD, WEIGHTS = "pcshrink.json", "model.safetensors"


def fresh(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model, example = fresh(), torch.randn(2, 3, 8, 8)
    shrinker = pcs.attach_(model, example)
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    return save(tmp_path / "saved", pcs.compact(model, plan, example), plan, metrics={"error": 1.0})


def refused(folder: Path, name: str | None = None) -> str:
    """The message; the model that was passed must be as it was."""
    model = fresh(1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        load(folder, model=model)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    if name is not None:
        assert name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", [RECORD, WEIGHTS])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99, 1.5])
def test_cut_off_or_too_long(saved: Path, name: str, share: float) -> None:
    data = (saved / name).read_bytes()
    (saved / name).write_bytes((data * 2)[: int(len(data) * share)])
    refused(saved, name)


@pytest.mark.parametrize("name", [RECORD, WEIGHTS])
def test_250_flipped_bits_in_each_file(saved: Path, name: str) -> None:
    data, draw = (saved / name).read_bytes(), random.Random(0)
    for _ in range(250):
        place, bit = draw.randrange(len(data)), draw.randrange(8)
        (saved / name).write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        refused(saved)


@pytest.mark.parametrize("name", [RECORD, WEIGHTS])
def test_missing_or_not_a_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    assert "missing" in refused(saved, name)
    (saved / name).mkdir()
    assert "not a file" in refused(saved, name)


def test_missing_folder(tmp_path: Path) -> None:
    assert "missing" in refused(tmp_path / "nothing", RECORD)


def test_swapped_between_two_artifacts(saved: Path, tmp_path: Path) -> None:
    other = save(tmp_path / "other", fresh(5), None)
    (saved / WEIGHTS).write_bytes((other / WEIGHTS).read_bytes())
    refused(saved, WEIGHTS)
    (other / RECORD).write_bytes((saved / RECORD).read_bytes())
    refused(other)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a record as somebody would who can compute hashes."""
    content = json.loads((folder / RECORD).read_text())
    content.pop("sha256")
    change(content)
    body = b'",' + json.dumps(content, indent=1).encode()[1:] + b"\n"
    (folder / RECORD).write_bytes(HEAD + files.sha256(body).encode() + body)


def put(**entries: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content.update(entries)


def in_gate(**entries: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content["gates"][0]["spec"].update(entries)


def ranges(text: str) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content["plan"]["tensors"]["0.weight"]["keep"].update({"0": text})


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "path upwards": lambda c: c["weights"].update(file="../../etc/passwd"),
    "absolute path": lambda c: c["weights"].update(file="/etc/passwd"),
    "absurd range": ranges("0-999999999"),
    "many ranges": ranges(",".join(["0-9000000"] * 40)),
    "no index at all": ranges(""),
    "index too high": ranges("0-99"),
    "negative index": ranges("-5-3"),
    "plan is a list": put(plan=[]),
    "plan of another schema": lambda c: c["plan"].update(schema=9),
    "absurd gate": in_gate(channels=10**15, settings={"hidden": 10**15, "norm": True}),
    "absurd generator": in_gate(settings={"hidden": 10**15, "norm": True}),
    "gate without settings": in_gate(settings={}),
    "gate with settings of text": in_gate(settings={"hidden": "8", "norm": True}),
    "gate of an unknown kind": in_gate(kind="magic"),
    "gate of another kind": in_gate(kind="mask", settings={}),
    "unknown switch": lambda c: c["gates"][0]["switches"].update(callback=True),
    "large gate": in_gate(channels=10**7),
    "gate on nothing": in_gate(module="nowhere"),
    "gate with text": in_gate(axis="1"),
    "unknown gate field": in_gate(callback="os.system"),
    "scale on nothing": put(scales=[{"module": "7", "axis": 1, "at_input": False}]),
    "tie to nothing": put(tied={"0.weight": "nothing"}),
    "negative shape": put(input_shape=[-1, 3]),
    "builder is a number": put(builder=3),
    "metrics is a list": put(metrics=[]),
    "no gates": lambda c: c.pop("gates"),
    "gates elsewhere": put(gates=[]),
    "uncut": put(compact=False),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_records_with_a_right_hash(saved: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    rewrite(saved, change)
    model = fresh(1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ShrinkError) as caught:
        load(saved, model=model)
    assert str(saved) in str(caught.value)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("builder", "arguments"),
    [
        ("os:system", {"command": "touch ran"}),
        ("timm:hf-hub:evil/model", {}),
        ("timm:test_resnet", {"checkpoint_path": "evil.pkl"}),
        ("timm:test_resnet", {"pretrained": True}),
        ("timm:test_resnet", {"pretrained_cfg_overlay": {"file": "evil.pkl"}}),
        ("torchvision:squeezenet1_1", {"weights": "DEFAULT"}),
        ("torchvision:no_such_model", {}),
        ("pcshrink:resnet20", {"spec": "os:system"}),
        ("pcshrink:resnet20", {"num_classes": 10**12}),
    ],
)
def test_builders_that_would_run_or_fetch_something(
    saved: Path, builder: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    rewrite(saved, put(builder=builder, builder_args=arguments))
    with pytest.raises(CheckpointError, match=RECORD):
        load(saved)
    assert not (saved / "ran").exists()


def test_a_trusted_builder_runs(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    save(tmp_path, model, None, "torch.nn:Linear", builder_args={"in_features": 3, "out_features": 2})
    with pytest.raises(CheckpointError, match="trust_builder"):
        load(tmp_path)
    assert torch.equal(load(tmp_path, trust_builder=True).weight, model.weight)


def test_a_newer_schema_says_update(saved: Path) -> None:
    rewrite(saved, put(schema=3))
    assert "update pcshrink" in refused(saved, RECORD)


def test_deeply_nested_record(saved: Path) -> None:
    (saved / RECORD).write_text("[" * 200_000)
    refused(saved, RECORD)


def test_huge_record(saved: Path) -> None:
    with (saved / RECORD).open("r+b") as handle:
        handle.truncate(1 << 40)  # sparse
    assert "absurdly large" in refused(saved, RECORD)


class Payload:
    """Unpickling it leaves a trace."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.mark),))


def test_pickles_are_never_opened(saved: Path, tmp_path: Path) -> None:
    mark, hostile = tmp_path / "ran", tmp_path / "hostile.pth"
    record = (saved / RECORD).read_bytes()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        hostile.write_bytes(pickle.dumps(Payload(mark), protocol))
        with pytest.raises(CheckpointError, match=r"hostile\.pth"):
            load_weights(hostile)
        (saved / WEIGHTS).write_bytes(hostile.read_bytes())
        refused(saved, WEIGHTS)
        (saved / RECORD).write_bytes(hostile.read_bytes())
        refused(saved, RECORD)
        (saved / RECORD).write_bytes(record)
    torch.save({"state_dict": Payload(mark)}, hostile)
    with pytest.raises(CheckpointError, match="never opened"):
        load_weights(hostile)
    assert not mark.exists()


def valid(saved: Path, weights: bytes) -> None:
    """Put these weights in with a record that fits them."""
    (saved / WEIGHTS).write_bytes(weights)
    entry = {"file": WEIGHTS, "bytes": len(weights), "sha256": files.sha256(weights)}
    rewrite(saved, put(weights=entry))


def test_safetensors_bombs(saved: Path) -> None:
    entry = {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 16]}
    for header in (b'{"a":' + b"[" * 5000, json.dumps({"0.weight": entry}).encode(), b"{}" * 9):
        valid(saved, struct.pack("<Q", len(header)) + header + bytes(16))
        refused(saved, WEIGHTS)
    valid(saved, struct.pack("<Q", 1 << 60) + b"{}")
    refused(saved, WEIGHTS)


def test_a_save_killed_at_any_point_leaves_one_whole_artifact(saved: Path, tmp_path: Path) -> None:
    old_record, old_weights = (saved / RECORD).read_bytes(), (saved / WEIGHTS).read_bytes()
    other = save(tmp_path / "other", fresh(5), None)
    new_record, new_weights = (other / RECORD).read_bytes(), (other / WEIGHTS).read_bytes()
    found = []
    for stop in range(20):
        digest = Artifact.from_bytes(old_record, "").weights_sha256
        files.replace_artifact(saved, old_record, old_weights, digest)
        if not _killed(saved, new_record, new_weights, stop):
            break
        model = load(saved, model=fresh(1))
        found.append(model[0].weight.shape[0])
    assert stop >= 8
    assert set(found) == {4, 8}  # the old one first, the new one from the commit on
    assert found == sorted(found)
    load(saved, model=fresh(1))
    assert sorted(p.name for p in saved.iterdir()) == [WEIGHTS, RECORD]


def _killed(folder: Path, record: bytes, weights: bytes, stop: int) -> bool:
    """Save in a process of its own that dies at the n-th system call that changes the folder."""
    child = os.fork()
    if child == 0:
        left = [stop]
        for owner, name in ((Path, "replace"), (os, "fsync"), (Path, "open")):
            original = getattr(owner, name)

            def dying(*args: Any, _original: Any = original, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return _original(*args, **kwargs)

            setattr(owner, name, dying)
        files.replace_artifact(folder, record, weights, files.sha256(weights))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_full_disk_keeps_the_old_one(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    before = load(saved, model=fresh())[0].weight
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            save(saved, fresh(5), None)
    assert torch.equal(load(saved, model=fresh())[0].weight, before)
    assert sorted(p.name for p in saved.iterdir()) == [WEIGHTS, RECORD]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be written"):
        save(tmp_path / "file" / "deeper", fresh(), None)


def test_other_files_in_the_folder_stay(saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    save(saved, fresh(5), None)
    assert (saved / "notes.txt").read_text() == "mine"


def test_two_writers_and_a_reader(saved: Path) -> None:
    models = [fresh(5), fresh(6)]
    children = []
    for model in models:
        child = os.fork()
        if child == 0:
            for _ in range(15):
                save(saved, model, None)
            os._exit(0)
        children.append(child)
    for _ in range(30):
        load(saved, model=fresh(1))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0]
    last = load(saved, model=fresh(1))[0].weight
    assert any(torch.equal(last, model[0].weight) for model in models)


@pytest.mark.parametrize("place", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_existing_checkpoints(tmp_path: Path, place: str | None, prefix: str) -> None:
    model, path = fresh(), tmp_path / "old.pth"
    state = {prefix + k: v for k, v in model.state_dict().items()}
    torch.save({place: state, "epoch": 3} if place else state, path)
    found = load_weights(path)
    assert found.keys() == model.state_dict().keys()
    fresh(1).load_state_dict(found)


@pytest.mark.parametrize("content", [{"epoch": 3}, [1, 2], {}, {"optimizer": {"state": {}}}])
def test_checkpoints_without_weights(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "none.pth")
    with pytest.raises(CheckpointError, match=r"none\.pth holds no state_dict"):
        load_weights(tmp_path / "none.pth")
