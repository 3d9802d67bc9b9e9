"""Exported models agree with the model, or there is no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.errors import ConfigError, VerificationError
from pcshrink.export import export_onnx, export_openvino, export_pt2
from pcshrink.graph import exporters
from pcshrink.runtime.onnxruntime import onnx_runner, onnx_session
from testing.checks import outputs, relative
from testing.nets import CASES

pytestmark = pytest.mark.export


def net(gates: str) -> tuple[nn.Module, torch.Tensor]:
    """A small residual net, cut to half."""
    model, example = CASES["Residual"].model(), CASES["Residual"].inputs()
    shrinker = pcs.attach_(model, example)
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    return pcs.compact(model, plan, example, gates=gates).train(), example  # type: ignore[arg-type]


def runs(path: Path, model: nn.Module, example: torch.Tensor, batch: int) -> bool:
    inputs = torch.randn(batch, *example.shape[1:])
    expected = outputs(model.eval(), inputs)
    return relative(expected, onnx_runner(path)([inputs])) < 1e-5


@pytest.mark.parametrize(("gates", "exporter"), [("keep", "dynamo"), ("keep", "legacy"), ("fold", "legacy")])
def test_onnx_with_any_batch(gates: str, exporter: str, tmp_path: Path) -> None:
    model, example = net(gates)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    report = export_onnx(model, example, tmp_path / "m.onnx", batch="dynamic", exporters=(exporter,))
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert (report.exporter, report.inputs, report.top1_equal) == (exporter, 256, 1.0)
    assert report.difference < 1e-5
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert runs(tmp_path / "m.onnx", model, example, batch=7)


def test_onnx_with_a_fixed_batch(tmp_path: Path) -> None:
    model, example = net("fold")
    export_onnx(model, example, tmp_path / "m.onnx", batch=5, exporters=("legacy",))
    session = onnx_session(tmp_path / "m.onnx", threads=1)
    assert session.get_inputs()[0].shape[0] == 5


def test_onnx_tells_no_paths_of_the_machine(tmp_path: Path) -> None:
    model, example = net("keep")
    export_onnx(model, example, tmp_path / "model.onnx")
    assert str(Path(torch.__file__).parent).encode() not in (tmp_path / "model.onnx").read_bytes()
    assert b"stack_trace" not in (tmp_path / "model.onnx").read_bytes()


def test_the_second_exporter_steps_in_when_the_first_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, example = net("fold")

    def wrong(ready: nn.Module, example: Any, path: Path, dynamic: bool) -> None:
        with torch.no_grad():
            next(ready.parameters()).mul_(1.01)
        exporters.write_legacy(ready, example, path, dynamic)
        with torch.no_grad():
            next(ready.parameters()).div_(1.01)

    def broken(*_arguments: Any) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setitem(exporters.EXPORTERS, "dynamo", wrong)
    assert export_onnx(model, example, tmp_path / "m.onnx").exporter == "legacy"
    before = (tmp_path / "m.onnx").read_bytes()
    monkeypatch.setitem(exporters.EXPORTERS, "legacy", broken)
    with pytest.raises(VerificationError, match=r"dynamo: .*does not agree.*legacy: .*no such operator"):
        export_onnx(model, example, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_pt2_of_a_gated_model(tmp_path: Path) -> None:
    model, example = net("keep")
    report = export_pt2(model, example, tmp_path / "m.pt2", batch="dynamic")
    loaded = torch.export.load(tmp_path / "m.pt2").module()
    inputs = torch.randn(9, *example.shape[1:])
    assert relative(outputs(model.eval(), inputs), [loaded(inputs)]) < 1e-5
    assert report.inputs == 256


def test_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    model, example = net("fold")
    report = export_openvino(model, example, tmp_path / "m.xml", batch="dynamic")
    assert report.difference < 1e-4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.bin", "m.xml"]
    with pytest.raises(ConfigError, match=r"\.xml"):
        export_openvino(model, example, tmp_path / "m.onnx")


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    for name in ("TwoInputs", "TwoOutputs"):
        case = CASES[name]
        report = export_onnx(case.model(), case.inputs(), tmp_path / f"{name}.onnx", exporters=("legacy",))
        assert report.difference < 1e-5


@pytest.mark.parametrize("batch", [0, -1, "all", 1.5])
def test_impossible_batches(batch: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch"):
        export_onnx(nn.Linear(2, 2), torch.rand(1, 2), tmp_path / "m.onnx", batch=batch)
