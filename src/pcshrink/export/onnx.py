"""ONNX: torch's own exporter, the legacy one as second try, and onnxruntime as the judge of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.errors import ShrinkError, VerificationError
from pcshrink.export.report import INPUTS, Batch, ExportReport, agree, prepare, quiet, require, staged
from pcshrink.surgery.graph import call_arguments, tensors, unwrap

Exporter = Callable[[nn.Module, Any, Path, bool], None]


def export_onnx(
    model: nn.Module,
    example_input: Any,
    path: str | Path,
    *,
    batch: Batch = None,
    exporters: tuple[str, ...] = ("dynamo", "legacy"),
) -> ExportReport:
    """Write an ONNX file that was proven to give the model's outputs.

    The file is checked by the ONNX checker and compared with the model on 256 random inputs in onnxruntime
    (1e-4 of the largest output, same top-1) under a temporary name; ``path`` is touched only if it agrees.

    Args:
        model: Any module, with gates, folded or plain; it is left untouched.
        example_input: A tensor, or a tuple of arguments.
        path: Where to write.
        batch: A fixed batch size, "dynamic", or None for that of the example.
        exporters: Which to try, in this order.

    Raises:
        VerificationError: No exporter gave a file that agrees; the message has each one's reason.
        ConfigError: onnx or onnxruntime is not installed.
    """
    require("onnx", "onnxscript", "onnxruntime")
    base = unwrap(model)
    ready, example, norm_error = prepare(base, example_input, batch)
    reasons = []
    for name in exporters:
        try:
            with staged(path) as temporary:
                with quiet():
                    EXPORTERS[name](ready, example, temporary, batch == "dynamic")
                    require("onnx").checker.check_model(str(temporary))
                inputs, worst, share = agree(base, onnx_runner(temporary, threads=1), example, batch)
                size = temporary.stat().st_size
            break
        except Exception as error:  # exporters raise anything; every reason is shown below
            text = " ".join(str(error).split())
            reasons.append(f"{name}: {type(error).__name__}: {text[:400]}")
            if isinstance(error, ShrinkError) and not isinstance(error, VerificationError):
                raise
    else:
        message = f"{path} was not written: no exporter gave a model that agrees on {INPUTS} inputs. "
        raise VerificationError(message + "; ".join(reasons))
    return ExportReport(
        path=Path(path), format="onnx", exporter=name, inputs=inputs, difference=worst,
        top1_equal=share, norm_error=norm_error, bytes=size,
    )  # fmt: skip


def _dynamo(model: nn.Module, example: Any, path: Path, dynamic: bool) -> None:
    args, kwargs = call_arguments(example)
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, dynamo=True, external_data=False, verbose=False,
        dynamic_shapes=dynamic_shapes(example) if dynamic else None,
    )  # fmt: skip


def _legacy(model: nn.Module, example: Any, path: Path, dynamic: bool) -> None:
    args, kwargs = call_arguments(example)
    names = [f"input_{number}" for number in range(len(tensors(example)))]
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, dynamo=False, input_names=names,
        dynamic_axes={name: {0: "batch"} for name in names} if dynamic else None,
    )  # fmt: skip


EXPORTERS: dict[str, Exporter] = {"dynamo": _dynamo, "legacy": _legacy}


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
