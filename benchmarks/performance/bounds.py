"""What bounds the step of a cut network: its time by kind of operation, and single convolutions of growing width."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.performance.rows import Effort, Row
from pcshrink.measure.timing import interleave, paired_ratio

WIDTHS = (8, 16, 24, 32)
PIXELS, BATCH = 32, 128
# By the beginning of the operation's name; in this order, so that "convolution" does not take its gradient.
KINDS = (
    ("gradients of convolutions", ("aten::convolution_backward",)),
    ("convolutions", ("aten::mkldnn_convolution", "aten::_convolution")),
    ("gradients of norms", ("aten::native_batch_norm_backward",)),
    ("norms", ("aten::native_batch_norm",)),
    ("ReLU and its gradient", ("aten::threshold_backward", "aten::clamp_min")),
)
REST = "everything else"


def single_convolution(width: int) -> Callable[[], object]:
    """Forward and backward pass of a 3 x 3 convolution from this many channels to as many, as a step has them."""
    layer = nn.Conv2d(width, width, 3, padding=1, bias=False).to(memory_format=torch.channels_last)
    x, grad = (
        torch.randn(BATCH, width, PIXELS, PIXELS).bfloat16().contiguous(memory_format=torch.channels_last)
        for _ in range(2)
    )
    x.requires_grad_()

    def call() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
        return torch.autograd.grad(out, (x, layer.weight), grad)

    return call


def measure_convolutions(effort: Effort) -> Iterator[Row]:
    """The time of each width over that of 16 and of 32 channels, beside the multiply-adds."""
    calls = {str(width): single_convolution(width) for width in WIDTHS}
    times = interleave(calls, effort.seconds, effort.rounds, clock=time.process_time)
    for narrow, wide in ((8, 16), (8, 32), (16, 32), (24, 32)):
        share = (narrow / wide) ** 2
        work = f"one convolution of {narrow} channels / of {wide}, {share:.2f} of the madds, bf16"
        yield Row.of("compact", work, None, paired_ratio(times[str(narrow)], times[str(wide)]))


def kinds_of(step: Callable[[], object], count: int = 5) -> dict[str, float]:
    """Milliseconds of a step by kind of operation, by the clock, as the profiler has no other."""
    step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(count):
            step()
    spent: dict[str, float] = defaultdict(float)
    for event in seen.key_averages():
        kind = next((kind for kind, names in KINDS if event.key.startswith(names)), REST)
        spent[kind] += event.self_cpu_time_total / (1e3 * count)
    return spent


def measure_kinds(dense: Callable[[], object], small: Callable[[], object], name: str) -> Iterator[Row]:
    """Kind by kind: its share of the dense step, and what is left of it."""
    whole, left = kinds_of(dense), kinds_of(small)
    for kind in [*(kind for kind, _ in KINDS), REST]:
        yield Row("compact", f"{kind} / dense step", None, whole[kind] / sum(whole.values()))
        yield Row("compact", f"{kind}: compact / dense, {name}", None, left[kind] / whole[kind])
