"""The examples run, quickly, and do what they show."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import pcshrink as pcs
from pcshrink.models import build
from pcshrink.surgery.gates import find_gates

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LONGEST = 70
pytestmark = pytest.mark.train


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


def test_detection() -> None:
    pytest.importorskip("torchvision")
    small, losses = example("detection").main(steps=3, batch=2)
    assert find_gates(small)
    assert all(0 < loss < 10 for loss in losses)


@pytest.mark.filterwarnings("ignore")
def test_lightning() -> None:
    pytest.importorskip("lightning")
    small, error = example("with_lightning").main(epochs=4)
    assert error < 0.2
    dense = build("digitsnet")
    madds = [pcs.profile(net, torch.zeros(1, 1, 16, 16)).madds for net in (dense, small)]
    assert madds[1] <= 0.51 * madds[0]


@pytest.mark.filterwarnings("ignore")
def test_huggingface() -> None:
    pytest.importorskip("transformers")
    small = example("with_huggingface").main(steps=8)
    heads = [m.num_attention_heads for m in small.modules() if hasattr(m, "num_attention_heads")]
    assert heads == [2, 2]


def test_the_package_never_imports_what_is_under_the_agpl() -> None:
    package = EXAMPLES.parent / "src"
    assert not [path.name for path in package.rglob("*.py") if "ultralytics" in path.read_text(encoding="utf-8")]


@pytest.mark.filterwarnings("ignore")
def test_yolo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("YOLO_OFFLINE", "true")
    pytest.importorskip("ultralytics")
    options = {
        "imgsz": 64, "batch": 4, "workers": 0, "device": "cpu", "optimizer": "SGD", "lr0": 0.01, "nbs": 4, "val": False,
        "plots": False, "pretrained": False, "amp": False, "project": str(tmp_path), "name": "run",
    }  # fmt: skip
    data = made_up_boxes(tmp_path / "boxes")
    small = example("yolo").main(data, tmp_path / "small.pt", epochs=1, settle=1, **options)
    dense = sum(p.numel() for p in type(small)("yolov8n.yaml").model.parameters())
    assert sum(p.numel() for p in small.model.parameters()) < 0.75 * dense
    assert not find_gates(small.model)
    found = small.predict(str(tmp_path / "boxes" / "images" / "0.png"), imgsz=64, verbose=False, save=False)
    assert len(found) == 1
    assert Path(small.export(format="torchscript", imgsz=64)).is_file()


def made_up_boxes(folder: Path) -> Path:
    """Eight images with a bright box each."""
    image = pytest.importorskip("PIL.Image")
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    for number in range(8):
        picture = torch.zeros(64, 64, 3, dtype=torch.uint8)
        picture[16:40, 8 + number : 40 + number] = 200
        image.fromarray(picture.numpy()).save(folder / "images" / f"{number}.png")
        (folder / "labels" / f"{number}.txt").write_text(f"0 {(24 + number) / 64} {28 / 64} 0.5 {24 / 64}\n")
    content = f"path: {folder}\ntrain: images\nval: images\nnames: {{0: box}}\n"
    (folder / "data.yaml").write_text(content)
    return folder / "data.yaml"


def test_two_processes_agree() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, str(EXAMPLES / "with_ddp.py"), "--steps", "4"]
    ranks = [
        subprocess.Popen(
            command, env=common | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    done = [process.communicate(timeout=120) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], done[0][1] + done[1][1]
    assert "2 ranks agree" in done[0][0]
