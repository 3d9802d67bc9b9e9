"""A model in a runtime, ready to be called again and again on one input."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator

import torch
from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.graph.model import unwrap
from pcshrink.runtime.registry import RUNTIMES, Call, Runtime, RuntimeLike

MOST_THREADS = max(256, os.cpu_count() or 1)


def check_runtime(runtime: RuntimeLike, *, trust: bool = False) -> Runtime:
    """Give a runtime that can run here.

    Args:
        runtime: A name of ``RUNTIMES``, a Runtime, or its ``prepare`` function.
        trust: Run code of the user's own that is given by name.

    Raises:
        ConfigError: There is none, it cannot run here, or it is not trusted; with what to do about it.
    """
    known = RUNTIMES.get(runtime, trust=trust)
    known.check()
    return known


def ready(model: nn.Module, example_input: object, runtime: RuntimeLike, threads: int) -> Call:
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
    place = check_runtime(runtime)
    check_threads(threads)
    own = copy.deepcopy(unwrap(model)).eval().requires_grad_(False)
    return place.prepare(own, example_input, threads)


def check_threads(threads: int) -> None:
    """Refuse a number of threads that no runtime could start.

    Raises:
        ConfigError: It is none, or so large that starting them ends the process.
    """
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        message = f"threads must be a whole number from 1 to {MOST_THREADS}, got {threads!r}"
        raise ConfigError(message)


@contextlib.contextmanager
def use_threads(threads: int | None) -> Iterator[int]:
    """Let torch use so many threads for a while; None leaves the number as it is."""
    before = torch.get_num_threads()
    if threads is not None:
        check_threads(threads)
    try:
        torch.set_num_threads(threads or before)
        yield threads or before
    finally:
        torch.set_num_threads(before)
