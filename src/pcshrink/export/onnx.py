"""ONNX: torch's own exporter, the legacy one as second try, and onnxruntime as the judge of both."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from pcshrink.common.files import staged
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import CheckpointError, ConfigError, VerificationError
from pcshrink.export.agree import Batch, ExportReport, agree, prepare
from pcshrink.export.registry import ExportFormat
from pcshrink.graph.exporters import FOR_DEPLOYMENT, write_onnx
from pcshrink.graph.images import check_images
from pcshrink.graph.model import unwrap
from pcshrink.runtime.onnx_layout import keep_layout
from pcshrink.runtime.onnxruntime import onnx_runner, onnx_session
from pcshrink.runtime.optional import require

METADATA = "pcshrink.preprocessing"


def export_onnx(
    model: nn.Module,
    example_input: object,
    path: str | Path,
    *,
    batch: Batch = None,
    exporters: Sequence[str] = FOR_DEPLOYMENT,
    preprocessing: Preprocessing | None = None,
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
        preprocessing: How images become the input; kept in the file's metadata with the names of classes, input and
            output, see ``read_preprocessing``.

    Raises:
        VerificationError: No exporter gave a file that agrees; the message has each one's reason.
        ConfigError: onnx or onnxruntime is not installed.
    """
    check_onnx()
    base = unwrap(model)
    if preprocessing is not None:
        check_images(base, preprocessing, example_input)
    ready, example, norm_error = prepare(base, example_input, batch)

    def judge(file: Path) -> tuple[int, float, float]:
        keep_layout(file)
        _forget_sources(file)
        if preprocessing is not None:
            _describe(file, preprocessing)
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


def check_onnx() -> None:
    """See that everything is there that writes and judges ONNX files.

    Raises:
        ConfigError: Something is not installed.
    """
    require("onnx", "onnxscript", "onnxruntime")


def _forget_sources(file: Path) -> None:
    """Take out what torch notes of the code behind every operation: a file that is handed on tells no paths."""
    onnx = require("onnx")
    model = onnx.load(str(file), load_external_data=False)
    for part in (model.graph, *model.functions):
        for noted in (*part.node, *part.value_info):
            del noted.metadata_props[:]
    onnx.save(model, str(file))


def _describe(file: Path, preprocessing: Preprocessing) -> None:
    """Put the preprocessing into the file, with the names that input and output really have there."""
    onnx = require("onnx")
    graph = onnx.load(str(file))
    names = {"input_name": graph.graph.input[0].name, "output_name": graph.graph.output[0].name}
    stated = json.dumps(dataclasses.replace(preprocessing, **names).to_dict())
    onnx.helper.set_model_props(graph, {METADATA: stated})
    onnx.save(graph, str(file))


def read_preprocessing(path: str | Path) -> Preprocessing | None:
    """What an ONNX file says about its images; None if it says nothing.

    Raises:
        CheckpointError: There is no such file, it is damaged, or what it says makes no sense.
        ConfigError: onnxruntime is not installed.
    """
    require("onnxruntime")
    if not Path(path).is_file():
        message = f"there is no file {path}"
        raise CheckpointError(message)
    try:
        stated = onnx_session(Path(path)).get_modelmeta().custom_metadata_map.get(METADATA)
        return None if stated is None else Preprocessing.from_dict(json.loads(stated))
    except (ConfigError, ValueError, RuntimeError) as error:
        message = f"{path} cannot be read as an ONNX file of this package: {' '.join(str(error).split())[:300]}"
        raise CheckpointError(message) from error
    except Exception as error:  # onnxruntime's own classes come straight from Exception
        message = f"{path} is no valid ONNX file: {' '.join(str(error).split())[:300]}"
        raise CheckpointError(message) from error


ONNX = ExportFormat(
    name="onnx",
    write=export_onnx,
    suffix=".onnx",
    check=check_onnx,
    describes=True,
    description="ONNX, judged in onnxruntime",
)
