"""Write ONNX files with either of torch's exporters, and run them in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.graph.model import call_arguments, tensors
from pcshrink.runtime.common import require

Exporter = Callable[[nn.Module, Any, Path, bool], None]


def write_dynamo(model: nn.Module, example: Any, path: Path, dynamic: bool) -> None:
    """Torch's current exporter."""
    args, kwargs = call_arguments(example)
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, dynamo=True, external_data=False, verbose=False,
        dynamic_shapes=dynamic_shapes(example) if dynamic else None,
    )  # fmt: skip


def write_legacy(model: nn.Module, example: Any, path: Path, dynamic: bool) -> None:
    """The older exporter, which traces; much quicker."""
    args, kwargs = call_arguments(example)
    names = [f"input_{number}" for number in range(len(tensors(example)))]
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, dynamo=False, input_names=names,
        dynamic_axes={name: {0: "batch"} for name in names} if dynamic else None,
    )  # fmt: skip


EXPORTERS: dict[str, Exporter] = {"dynamo": write_dynamo, "legacy": write_legacy}


def dynamic_shapes(example_input: Any) -> Any:
    """The first axis of every tensor of an example, marked as the batch."""
    args, kwargs = call_arguments(example_input)
    batch = torch.export.Dim("batch", min=1, max=1 << 16)

    def one(leaf: Any) -> Any:
        return {0: batch} if isinstance(leaf, Tensor) and leaf.ndim else None

    if kwargs:
        return {name: one(value) for name, value in kwargs.items()}
    return tuple(one(value) for value in args)


def onnx_runner(path: Path, threads: int = 0) -> Callable[[list[Tensor]], list[Tensor]]:
    """An ONNX file in onnxruntime on the CPU, as a function of tensors."""
    session = onnx_session(path, threads)
    names = [entry.name for entry in session.get_inputs()]

    def call(inputs: list[Tensor]) -> list[Tensor]:
        feed = {name: tensor.cpu().numpy() for name, tensor in zip(names, inputs, strict=False)}
        return [torch.as_tensor(output) for output in session.run(None, feed)]

    return call


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
