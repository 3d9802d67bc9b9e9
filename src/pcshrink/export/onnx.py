"""ONNX: torch's own exporter, the legacy one as second try, and onnxruntime as the judge of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from pcshrink.common.files import staged
from pcshrink.errors import VerificationError
from pcshrink.export.agree import Batch, ExportReport, agree, prepare
from pcshrink.export.registry import ExportFormat
from pcshrink.graph.exporters import FOR_DEPLOYMENT, write_onnx
from pcshrink.graph.model import unwrap
from pcshrink.runtime.onnxruntime import onnx_runner
from pcshrink.runtime.optional import require


def export_onnx(
    model: nn.Module,
    example_input: Any,
    path: str | Path,
    *,
    batch: Batch = None,
    exporters: Sequence[str] = FOR_DEPLOYMENT,
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

    def judge(file: Path) -> tuple[int, float, float]:
        require("onnx").checker.check_model(str(file))
        return agree(base, onnx_runner(file, threads=1), example, batch)

    try:
        with staged(path) as temporary:
            dynamic = batch == "dynamic"
            name, judgement = write_onnx(ready, example, temporary, exporters=exporters, use=judge, dynamic=dynamic)
            size = temporary.stat().st_size
    except VerificationError as error:
        message = f"{path} was not written: {error}"
        raise VerificationError(message) from error
    inputs, worst, share = judgement
    return ExportReport(
        path=Path(path), format="onnx", exporter=name, inputs=inputs, difference=worst,
        top1_equal=share, norm_error=norm_error, bytes=size,
    )  # fmt: skip


ONNX = ExportFormat(name="onnx", write=export_onnx, suffix=".onnx", description="ONNX, judged in onnxruntime")
