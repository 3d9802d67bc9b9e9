"""Where the time of a gated step goes: what gates take, in shares of a dense step."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from benchmarks.performance.rows import Effort, Row
from benchmarks.performance.steps import CASES, Case, Mode, gated_step, step_of
from pcshrink.methods import reading
from pcshrink.methods.pcs import kernels
from pcshrink.methods.pcs.method import PCS

PARTS: tuple[tuple[Any, str, str], ...] = (
    (kernels, "generated", "generators, forward"),
    (kernels, "generator_gradients", "generators, backward"),
    (kernels, "normed", "gated norms, forward"),
    (kernels, "norm_gradients", "gated norms, backward"),
    (kernels.Tap, "forward", "pooling, forward"),
    (reading, "pool", "pooling, forward"),
    (kernels.Tap, "backward", "pooling, backward"),
    (PCS, "loss", "penalty, forward"),
    (PCS, "after_step", "running saliences"),
    (torch.optim.SGD, "step", "optimizer"),
)
PLAIN: tuple[tuple[Any, str, str], ...] = (
    (torch, "batch_norm", "for comparison, norms of the dense step, forward"),
    (torch.optim.SGD, "step", "for comparison, optimizer of the dense step"),
)
MODE = Mode("bf16 channels_last", bf16=True, channels_last=True)


@contextmanager
def timed(owner: Any, name: str, spent: list[float]) -> Iterator[None]:
    """Note what every call of this function takes."""
    original = owner.__dict__[name]
    function: Callable[..., Any] = getattr(owner, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        result = function(*args, **kwargs)
        spent.append(time.process_time() - began)
        return result

    setattr(owner, name, staticmethod(measured) if isinstance(original, staticmethod) else measured)
    try:
        yield
    finally:
        setattr(owner, name, original)


def shares_of(case: Case, rounds: int) -> dict[str, float]:
    """Each part of a gated step over the whole dense one; both steps take turns."""
    spent: dict[str, list[float]] = defaultdict(list)
    steps = {"dense": step_of(case.model(), case.images(case.batch), MODE), "gated": gated_step(case, MODE)}
    whole: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 2):
        for kind, step in steps.items():
            with ExitStack() as stack:
                parts = (PARTS if kind == "gated" else PLAIN) if number > 1 else ()  # after two rounds to warm up
                for owner, name, label in parts:
                    stack.enter_context(timed(owner, name, spent[label]))
                began = time.process_time()
                step()
                whole[kind].append(time.process_time() - began)
    dense, gated = (statistics.median(whole[kind][2:]) for kind in ("dense", "gated"))
    shares = {"all that gates add": gated / dense - 1}
    for label, calls in spent.items():
        each = len(calls) // rounds  # the same calls in every step
        shares[label] = sum(statistics.median(calls[i::each]) for i in range(each)) / dense
    return shares


def measure_profile(effort: Effort) -> Iterator[Row]:
    """A ResNet-20 and a MobileNetV2 in bfloat16 and channels_last."""
    for case in (CASES[0], CASES[2]):
        for label, share in shares_of(case, effort.rounds).items():
            yield Row("profile", f"{label} / dense step, {case.title}, {MODE.name}", None, share)
