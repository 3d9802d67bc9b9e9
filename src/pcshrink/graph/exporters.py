"""Torch's own exporters, as they are: no folding, no comparison.

Below ``export``, which proves what it writes, and below ``runtime``, which needs a file to run a model from.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pcshrink.errors import ShrinkError, VerificationError
from pcshrink.graph.model import call_arguments, tensors

Exporter = Callable[[nn.Module, Any, Path, bool], None]
Used = TypeVar("Used")

# Dynamo is the exporter that torch maintains, so it comes first for a file that is kept. The legacy one traces, which
# is much quicker, so it comes first where a model is only timed: a latency budget times dozens of them.
FOR_DEPLOYMENT = ("dynamo", "legacy")
FOR_MEASURING = ("legacy", "dynamo")
OUTPUT = "output"  # what the first output is called in an ONNX file


def write_onnx(
    model: nn.Module,
    example: object,
    path: Path,
    *,
    exporters: Sequence[str],
    use: Callable[[Path], Used],
    dynamic: bool = False,
) -> tuple[str, Used]:
    """Write an ONNX file with the first exporter whose file is of use.

    Args:
        model: In evaluation mode, without gradients.
        example: A tensor, or a tuple of arguments.
        path: Where to write; a file may be left there whatever happens.
        exporters: Names of ``EXPORTERS``, in the order to try them.
        use: Does with the file what it is for, and raises if it cannot; then the next exporter is tried.
        dynamic: Leave the batch size open.

    Returns:
        The name of the exporter, and what ``use`` gave.

    Raises:
        VerificationError: None gave a file that is of use; the message has each one's reason.
    """
    reasons = []
    for name in exporters:
        try:
            with quiet(), torch.no_grad():
                EXPORTERS[name](model, example, path, dynamic)
            return name, use(path)
        except Exception as error:  # exporters raise anything; every reason is shown below
            if isinstance(error, ShrinkError) and not isinstance(error, VerificationError):
                raise
            reasons.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
    message = f"no exporter gave an ONNX file that is of use. {'; '.join(reasons)}"
    raise VerificationError(message)


def write_dynamo(model: nn.Module, example: object, path: Path, dynamic: bool) -> None:
    """Torch's current exporter."""
    args, kwargs = call_arguments(example)
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, dynamo=True, external_data=False, verbose=False,
        input_names=input_names(example), output_names=[OUTPUT],
        dynamic_shapes=dynamic_shapes(example) if dynamic else None,
    )  # fmt: skip


def write_legacy(model: nn.Module, example: object, path: Path, dynamic: bool) -> None:
    """The older exporter, which traces; much quicker."""
    args, kwargs = call_arguments(example)
    names = input_names(example)
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, dynamo=False, input_names=names, output_names=[OUTPUT],
        dynamic_axes={name: {0: "batch"} for name in names} if dynamic else None,
    )  # fmt: skip


def input_names(example: object) -> list[str]:
    """What the inputs are called in an ONNX file."""
    count = len(tensors(example))
    return ["input"] if count == 1 else [f"input_{number}" for number in range(count)]


EXPORTERS: dict[str, Exporter] = {"dynamo": write_dynamo, "legacy": write_legacy}


def dynamic_shapes(example_input: object) -> Any:
    """The first axis of every tensor of an example, marked as the batch."""
    args, kwargs = call_arguments(example_input)
    batch = torch.export.Dim("batch", min=1, max=1 << 16)

    def one(leaf: object) -> Any:
        return {0: batch} if isinstance(leaf, Tensor) and leaf.ndim else None

    if kwargs:
        return {name: one(value) for name, value in kwargs.items()}
    return tuple(one(value) for value in args)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep exporters' own warnings away; what they get wrong shows in the comparison."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
