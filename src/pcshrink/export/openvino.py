"""OpenVINO, by way of a proven ONNX file, and compared once more."""

from __future__ import annotations

import json
from pathlib import Path

from torch import nn

from pcshrink.common.files import staged
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.common.scratch import scratch_folder
from pcshrink.errors import ConfigError
from pcshrink.export.agree import Batch, ExportReport, agree, prepare
from pcshrink.export.onnx import check_onnx, export_onnx
from pcshrink.export.registry import ExportFormat
from pcshrink.graph.exporters import quiet
from pcshrink.graph.images import check_images
from pcshrink.graph.model import unwrap
from pcshrink.runtime.openvino import openvino_runner
from pcshrink.runtime.optional import require


def export_openvino(
    model: nn.Module,
    example_input: object,
    path: str | Path,
    *,
    batch: Batch = None,
    preprocessing: Preprocessing | None = None,
) -> ExportReport:
    """Write an OpenVINO model (``.xml`` and ``.bin``) that was proven to give the model's outputs.

    Args:
        model: Any module; it is left untouched.
        example_input: A tensor, or a tuple of arguments.
        path: The ``.xml`` file; the weights go beside it.
        batch: A fixed batch size, "dynamic", or None for that of the example.
        preprocessing: How images become the input; kept in the file's ``rt_info`` under pcshrink, preprocessing.

    Raises:
        VerificationError: What was exported does not agree.
        ConfigError: openvino is not installed, or the path does not end in ``.xml``.
    """
    library = require("openvino")
    target = Path(path)
    if target.suffix != ".xml":
        message = f"an OpenVINO model is an .xml file, got {target}"
        raise ConfigError(message)
    base = unwrap(model)
    if preprocessing is not None:
        check_images(base, preprocessing, example_input)
    _, example, norm_error = prepare(base, example_input, batch)
    with staged(target) as made, scratch_folder(dir=made.parent) as scratch:
        source = scratch / "model.onnx"
        first = export_onnx(base, example_input, source, batch=batch)
        with quiet():
            converted = library.convert_model(str(source))
            if preprocessing is not None:
                converted.set_rt_info(json.dumps(preprocessing.to_dict()), ["pcshrink", "preprocessing"])
            library.save_model(converted, str(made), compress_to_fp16=False)
        inputs, worst, share = agree(base, openvino_runner(made, threads=1), example, batch)
        size = sum(part.stat().st_size for part in (made, made.with_suffix(".bin")))
    return ExportReport(
        path=target, format="openvino", exporter=f"openvino from {first.exporter} onnx", inputs=inputs,
        difference=worst, top1_equal=share, norm_error=norm_error, bytes=size,
    )  # fmt: skip


def _check_openvino() -> None:
    check_onnx()  # it is made from such a file
    require("openvino")


OPENVINO = ExportFormat(
    name="openvino",
    write=export_openvino,
    suffix=".xml",
    check=_check_openvino,
    describes=True,
    description="OpenVINO, from a proven ONNX file",
)
