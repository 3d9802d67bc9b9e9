"""ONNX files in onnxruntime on the CPU, and models by way of such a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.common.scratch import scratch_folder
from pcshrink.graph.exporters import FOR_MEASURING, write_onnx
from pcshrink.graph.model import tensors
from pcshrink.runtime.onnx_layout import keep_layout
from pcshrink.runtime.optional import require
from pcshrink.runtime.registry import Call, Runtime


def onnx_session(path: Path, threads: int = 0) -> Any:
    """An onnxruntime session on the CPU; 0 threads leaves the number to onnxruntime."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if threads:
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0" if threads == 1 else "1")
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def onnx_runner(path: Path, threads: int = 0) -> Callable[[list[Tensor]], list[Tensor]]:
    """An ONNX file in onnxruntime, as a function of tensors."""
    session = onnx_session(path, threads)
    names = [entry.name for entry in session.get_inputs()]

    def call(inputs: list[Tensor]) -> list[Tensor]:
        feed = {name: tensor.cpu().numpy() for name, tensor in zip(names, inputs, strict=False)}
        return [torch.as_tensor(output) for output in session.run(None, feed)]

    return call


def prepare_onnxruntime(model: nn.Module, example_input: object, threads: int) -> Call:
    """Call the model in onnxruntime."""
    arrays = [tensor.detach().cpu().numpy() for tensor in tensors(example_input)]
    with scratch_folder() as folder:
        path = folder / "model.onnx"
        _, session = write_onnx(
            model, example_input, path, exporters=FOR_MEASURING, use=lambda file: _session_of_export(file, threads)
        )
    feed = dict(zip([entry.name for entry in session.get_inputs()], arrays, strict=False))
    return lambda: session.run(None, feed)


def _session_of_export(file: Path, threads: int) -> Any:
    keep_layout(file)
    return onnx_session(file, threads)


def _check_onnxruntime() -> None:
    require("onnx", "onnxruntime")


ONNXRUNTIME = Runtime(
    name="onnxruntime",
    prepare=prepare_onnxruntime,
    check=_check_onnxruntime,
    description="onnxruntime on the CPU",
)
