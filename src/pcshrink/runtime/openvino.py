"""Convert ONNX files to OpenVINO, and run them there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcshrink.runtime.common import quiet, require


def convert(source: Path, target: Path) -> None:
    """Convert an ONNX file, at full precision."""
    library = require("openvino")
    with quiet():
        library.save_model(library.convert_model(str(source)), str(target), compress_to_fp16=False)


def openvino_compiled(path: Path, threads: int = 0) -> Any:
    """A model compiled for the CPU with float32 arithmetic; 0 threads leaves the number to OpenVINO."""
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads:
        settings["INFERENCE_NUM_THREADS"] = threads
    core = require("openvino").Core()
    return core.compile_model(str(path), "CPU", settings)


def openvino_runner(path: Path, threads: int = 0) -> Callable[[list[Tensor]], list[Tensor]]:
    """An OpenVINO model on the CPU, as a function of tensors."""
    compiled = openvino_compiled(path, threads)

    def call(inputs: list[Tensor]) -> list[Tensor]:
        results = compiled([tensor.cpu().numpy() for tensor in inputs])
        return [torch.tensor(results[port]) for port in compiled.outputs]

    return call
