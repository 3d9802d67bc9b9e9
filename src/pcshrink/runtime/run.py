"""A model in a runtime, ready to be called again and again on one input."""

from __future__ import annotations

import contextlib
import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from pcshrink.errors import ConfigError, ShrinkError
from pcshrink.graph.model import call_arguments, tensors, unwrap
from pcshrink.runtime.common import quiet, require
from pcshrink.runtime.onnx import EXPORTERS, onnx_session
from pcshrink.runtime.openvino import convert, openvino_compiled

Runtime = Literal["eager", "compiled", "onnxruntime", "openvino"]
Call = Callable[[], Any]


def check_runtime(runtime: str) -> None:
    """Refuse a runtime that does not exist or cannot run here.

    Raises:
        ConfigError: With what to do about it.
    """
    if runtime not in get_args(Runtime):
        message = f"runtime must be one of {', '.join(get_args(Runtime))}; got {runtime!r}"
        raise ConfigError(message)
    if runtime == "compiled" and not any(map(shutil.which, ("g++", "c++", "clang++", "cl"))):
        message = 'runtime="compiled" needs a C++ compiler, and there is none on the PATH; install g++'
        raise ConfigError(message)
    if runtime in ("onnxruntime", "openvino"):
        require("onnx", "onnxruntime" if runtime == "onnxruntime" else "openvino")


@contextlib.contextmanager
def use_threads(threads: int | None) -> Iterator[int]:
    """Let torch use so many threads for a while; None leaves the number as it is."""
    before = torch.get_num_threads()
    if threads is not None and (type(threads) is not int or threads < 1):
        message = f"threads must be a whole number of at least 1, got {threads!r}"
        raise ConfigError(message)
    try:
        torch.set_num_threads(threads or before)
        yield threads or before
    finally:
        torch.set_num_threads(before)


def ready(model: nn.Module, example_input: Any, runtime: Runtime, threads: int) -> Call:
    """A function that runs the model once, in evaluation mode and without gradients; the model is untouched.

    Args:
        model: Any module.
        example_input: A tensor, or a tuple of arguments.
        runtime: Where to run it.
        threads: How many threads the runtime may use; for eager and compiled set them with ``use_threads``.

    Raises:
        ConfigError: The runtime is unknown or not installed.
        ShrinkError: The model cannot be brought into this runtime.
    """
    check_runtime(runtime)
    own = copy.deepcopy(unwrap(model)).eval().requires_grad_(False)
    if runtime in ("eager", "compiled"):
        return _torch_call(own, example_input, runtime == "compiled")
    with tempfile.TemporaryDirectory(prefix="pcshrink-") as folder:
        path = Path(folder) / "model.onnx"
        write_onnx(own, example_input, path)
        arrays = [tensor.detach().cpu().numpy() for tensor in tensors(example_input)]
        if runtime == "onnxruntime":
            session = onnx_session(path, threads)
            feed = dict(zip([entry.name for entry in session.get_inputs()], arrays, strict=False))
            return lambda: session.run(None, feed)
        convert(path, path.with_suffix(".xml"))
        request = openvino_compiled(path.with_suffix(".xml"), threads).create_infer_request()
        return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)


def write_onnx(model: nn.Module, example_input: Any, path: Path) -> None:
    """An ONNX file for measuring: the quick exporter first. What is deployed is written by ``export_onnx``."""
    reasons = []
    for name in ("legacy", "dynamo"):
        try:
            with quiet(), torch.no_grad():
                EXPORTERS[name](model, example_input, path, False)
            return
        except Exception as error:  # exporters raise anything
            reasons.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    message = f"the model cannot be exported to ONNX: {'; '.join(reasons)}"
    raise ShrinkError(message)


def _torch_call(model: nn.Module, example_input: Any, compiled: bool) -> Call:
    args, kwargs = call_arguments(example_input)
    called: Any = torch.compile(model) if compiled else model
    on_gpu = any(tensor.is_cuda for tensor in tensors(example_input))

    def call() -> Any:
        with torch.inference_mode():
            out = called(*args, **kwargs)
        if on_gpu:
            torch.cuda.synchronize()
        return out

    return call
