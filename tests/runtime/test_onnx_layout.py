"""Rewrites of ONNX files with kept gates."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.graph.exporters import write_onnx
from pcshrink.runtime.onnx_layout import keep_layout
from pcshrink.runtime.onnxruntime import onnx_runner


class Net(nn.Module):
    """Gated norms before a ReLU, before a ReLU6, and before a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU6())
        self.third = nn.Sequential(nn.Conv2d(24, 16, 1), nn.BatchNorm2d(16))
        self.last = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        x = self.first(x)
        x = x + self.third(self.second(x))
        scores: Tensor = self.last(x.relu().mean((2, 3)))
        return scores


def exported(path: Path, exporter: str, *, gated: bool = True) -> Tensor:
    """Write a network whose gates clip and close channels now and then; gives an input."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        model.second[1].weight.fill_(8)  # so that ReLU6 has something to cut off
    if gated:
        shrinker = pcs.attach_(model, x)
        with torch.no_grad():
            for gate in shrinker.method.gates.values():
                gate.generator.fc2.weight.normal_(0, 3)
    write_onnx(model.eval(), x, path, exporters=(exporter,), use=lambda file: None)
    return x


def kinds(path: Path) -> Counter[str]:
    """How often each operation is there."""
    return Counter(node.op_type for node in onnx.load(str(path)).graph.node)


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_rewritten_files_are_valid_and_give_the_very_same_numbers(exporter: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    x = exported(path, exporter)
    before, expected = kinds(path), onnx_runner(path, 1)([x])[0]
    keep_layout(path)
    onnx.checker.check_model(str(path), full_check=True)
    assert torch.equal(onnx_runner(path, 1)([x])[0], expected)
    assert kinds(path) - before == {"Conv": 1}, "one that changes nothing, for ReLU6"
    graph = onnx.load(str(path)).graph
    makers = {name: node.op_type for node in graph.node for name in node.output}
    assert [makers.get(node.input[0]) for node in graph.node if node.op_type == "Clip"] == ["Conv"]
    assert "Mul" not in [makers.get(node.input[0]) for node in graph.node if node.op_type == "Relu"]


def test_a_file_without_gates_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    exported(path, "legacy", gated=False)
    before = copy.copy(path.read_bytes())
    keep_layout(path)
    assert path.read_bytes() == before
