"""torch.export archives (.pt2), compared after being read back."""

from __future__ import annotations

import io
import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pcshrink.common.files import staged
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import ShrinkError, VerificationError
from pcshrink.export.agree import Batch, ExportReport, agree, prepare
from pcshrink.export.registry import ExportFormat
from pcshrink.graph.exporters import dynamic_shapes, quiet
from pcshrink.graph.images import check_images
from pcshrink.graph.model import call_arguments, tensors, unwrap


def export_pt2(
    model: nn.Module,
    example_input: object,
    path: str | Path,
    *,
    batch: Batch = None,
    preprocessing: Preprocessing | None = None,
) -> ExportReport:
    """Write a ``torch.export`` archive that was proven to give the model's outputs.

    Args:
        model: Any module; it is left untouched.
        example_input: A tensor, or a tuple of arguments.
        path: Where to write, for example ``model.pt2``.
        batch: A fixed batch size, "dynamic", or None for that of the example.
        preprocessing: How images become the input; kept in the archive's extra file ``preprocessing.json``.

    Raises:
        VerificationError: The model cannot be exported, or what was exported does not agree.
    """
    base = unwrap(model)
    if preprocessing is not None:
        check_images(base, preprocessing, example_input)
    ready, example, norm_error = prepare(base, example_input, batch)
    args, kwargs = call_arguments(example)
    extra = {"preprocessing.json": json.dumps(preprocessing.to_dict())} if preprocessing is not None else {}
    shapes = dynamic_shapes(example) if batch == "dynamic" else None
    try:
        with staged(path) as temporary:
            with quiet(), torch.no_grad():
                program = torch.export.export(ready, args, kwargs, dynamic_shapes=shapes, strict=False)
                archive = io.BytesIO()  # torch's own writer ends the process where the disk is full
                torch.export.save(program, archive, extra_files=extra)
                temporary.write_bytes(archive.getbuffer())
                loaded = torch.export.load(temporary).module()
            inputs, worst, share = agree(base, _Runner(loaded, example), example, batch)
            size = temporary.stat().st_size
    except (ShrinkError, OSError):
        raise
    except Exception as error:  # torch.export raises anything
        message = f"{path} was not written: {type(error).__name__}: {' '.join(str(error).split())[:600]}"
        raise VerificationError(message) from error
    return ExportReport(
        path=Path(path), format="pt2", exporter="torch.export", inputs=inputs, difference=worst,
        top1_equal=share, norm_error=norm_error, bytes=size,
    )  # fmt: skip


class _Runner:
    """Calls a module with the tensors of an example put back in their places."""

    def __init__(self, module: nn.Module, example_input: object) -> None:
        self.module, self.example = module, example_input

    @torch.no_grad()
    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        left = list(inputs)
        filled = tree_map(lambda leaf: left.pop(0) if isinstance(leaf, Tensor) else leaf, self.example)
        args, kwargs = call_arguments(filled)
        return tensors(self.module(*args, **kwargs))


PT2 = ExportFormat(
    name="pt2", write=export_pt2, suffix=".pt2", describes=True, description="torch.export archive, read back"
)
