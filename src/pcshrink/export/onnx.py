"""ONNX: torch's own exporter, the legacy one as second try, and onnxruntime as the judge of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from pcshrink.common.files import staged
from pcshrink.errors import ShrinkError, VerificationError
from pcshrink.export.agree import INPUTS, Batch, ExportReport, agree, prepare
from pcshrink.graph.model import unwrap
from pcshrink.runtime.common import quiet, require
from pcshrink.runtime.onnx import EXPORTERS, onnx_runner


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
