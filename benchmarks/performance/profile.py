"""Where the time of a gated step goes: CPU milliseconds of what gates add, ResNet-20 in bfloat16 and channels_last.

python -m benchmarks.performance.profile [--steps 8]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.performance.steps import CASES, Mode, gated_step, step_of
from pcshrink.common.allocator import keep_freed_memory
from pcshrink.common.tables import text_table
from pcshrink.methods.pcs import kernels

PARTS: tuple[tuple[Any, str, str], ...] = (
    (kernels, "generated", "generators, forward"),
    (kernels, "generator_gradients", "generators, backward"),
    (kernels, "normed", "gated norms, forward"),
    (kernels, "norm_gradients", "gated norms, backward"),
    (kernels.Tap, "forward", "pooling, forward"),
    (kernels.Tap, "backward", "pooling, backward"),
)


def timed(owner: Any, name: str, spent: list[float]) -> None:
    """Note what every call of this function takes."""
    function: Callable[..., Any] = getattr(owner, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        result = function(*args, **kwargs)
        spent.append(time.process_time() - began)
        return result

    setattr(owner, name, staticmethod(measured) if isinstance(owner, type) else measured)


def main() -> None:
    """Take steps, and print the median of each part over them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    count = parser.parse_args().steps
    torch.set_num_threads(1)
    keep_freed_memory()
    case, mode = CASES[0], Mode("bf16 channels_last", bf16=True, channels_last=True)
    spent: dict[str, list[float]] = defaultdict(list)
    for owner, name, label in PARTS:
        timed(owner, name, spent[label])
    steps = {"dense": step_of(case.model(), case.images(case.batch), mode), "gated": gated_step(case, mode)}
    for step in steps.values():
        step()
        step()
    for calls in spent.values():
        calls.clear()
    whole: dict[str, list[float]] = defaultdict(list)
    for _ in range(count):
        for kind, step in steps.items():
            began = time.process_time()
            step()
            whole[kind].append(time.process_time() - began)
    rows = [[f"{kind} step", f"{1e3 * statistics.median(taken):.1f}"] for kind, taken in whole.items()]
    for label, calls in spent.items():
        each = len(calls) // count  # the same calls in every step
        rows.append([label, f"{1e3 * sum(statistics.median(calls[i::each]) for i in range(each)):.1f}"])
    print(text_table(rows, head=["part", "ms"]))


if __name__ == "__main__":
    main()
