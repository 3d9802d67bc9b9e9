"""Torch itself: as it is, or compiled."""

from __future__ import annotations

import shutil
from typing import Any

import torch
from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.graph.model import call_arguments, tensors
from pcshrink.runtime.registry import Call, Runtime

COMPILERS = ("g++", "c++", "clang++", "cl")


def prepare_eager(model: nn.Module, example_input: object, threads: int) -> Call:
    """Call the model as it is; torch's threads are those of the process."""
    args, kwargs = call_arguments(example_input)
    on_gpu = any(tensor.is_cuda for tensor in tensors(example_input))

    def call() -> Any:
        with torch.inference_mode():
            out = model(*args, **kwargs)
        if on_gpu:
            torch.cuda.synchronize()
        return out

    return call


def prepare_compiled(model: nn.Module, example_input: object, threads: int) -> Call:
    """Call the model through ``torch.compile``; the first call compiles."""
    compiled: Any = torch.compile(model)
    return prepare_eager(compiled, example_input, threads)


def _check_compiler() -> None:
    if not any(map(shutil.which, COMPILERS)):
        message = 'runtime="compiled" needs a C++ compiler, and there is none on the PATH; install g++'
        raise ConfigError(message)


EAGER = Runtime(name="eager", prepare=prepare_eager, description="torch as it is")
COMPILED = Runtime(
    name="compiled",
    prepare=prepare_compiled,
    check=_check_compiler,
    by_layer=False,
    description="torch.compile; needs a C++ compiler",
)
