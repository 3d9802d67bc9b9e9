"""OpenVINO on the CPU: its own files, and models by way of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.common.scratch import scratch_folder
from pcshrink.graph.exporters import FOR_MEASURING, quiet, write_onnx
from pcshrink.graph.model import tensors
from pcshrink.runtime.optional import require
from pcshrink.runtime.registry import Call, Runtime


def compile_openvino(model: object, threads: int = 0) -> Any:
    """A file or OpenVINO model, compiled with float32 arithmetic; 0 threads leaves the number to OpenVINO."""
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    return require("openvino").Core().compile_model(model, "CPU", settings)


def openvino_runner(path: Path, threads: int = 0) -> Callable[[list[Tensor]], list[Tensor]]:
    """An OpenVINO file, as a function of tensors."""
    compiled = compile_openvino(str(path), threads)

    def call(inputs: list[Tensor]) -> list[Tensor]:
        results = compiled([tensor.cpu().numpy() for tensor in inputs])
        return [torch.tensor(results[port]) for port in compiled.outputs]

    return call


def prepare_openvino(model: nn.Module, example_input: object, threads: int) -> Call:
    """Call the model in OpenVINO."""
    arrays = [tensor.detach().cpu().numpy() for tensor in tensors(example_input)]
    with scratch_folder() as folder:
        path = folder / "model.onnx"
        _, request = write_onnx(
            model, example_input, path, exporters=FOR_MEASURING, use=lambda file: _request(file, threads)
        )
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)


def _request(onnx_file: Path, threads: int) -> Any:
    with quiet():
        converted = require("openvino").convert_model(str(onnx_file))
    return compile_openvino(converted, threads).create_infer_request()


def _check_openvino() -> None:
    require("onnx", "openvino")


OPENVINO = Runtime(
    name="openvino",
    prepare=prepare_openvino,
    check=_check_openvino,
    description="OpenVINO on the CPU",
)
