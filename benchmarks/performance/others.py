"""Memory, deployment, whole runs and the start: parts that other benchmarks measure, beside their goals."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import start, training
from benchmarks.latency import NETS, contestants
from benchmarks.performance.child import ATTACHED, FORWARD, KINDS, measured
from benchmarks.performance.operations import measure_operations
from benchmarks.performance.rows import Effort, Row
from pcshrink.measure.timing import interleave, paired_ratio
from pcshrink.runtime.run import ready, use_threads

TITLES = {"resnet18": "ResNet-18", "resnet34": "ResNet-34", "vgg16": "VGG-16", "mobilenet_v2": "MobileNetV2"}


def measure_memory(effort: Effort) -> Iterator[Row]:
    """Peak of resident memory, and pages touched for the first time."""
    found = {kind: measured(kind) for kind in KINDS}
    ratio = found["gated"]["megabytes"] / found["dense"]["megabytes"]
    yield Row("memory", "peak memory of a gated step / dense step, ResNet-20, batch 128", 1.15, ratio)
    attached = measured(ATTACHED)["megabytes"] / measured(FORWARD)["megabytes"]
    yield Row("memory", "peak memory of `attach_` / network and one forward pass, ResNet-50 at 224 px", 2.5, attached)
    for kind in KINDS:
        yield Row("memory", f"page faults of a step, {kind}", None, found[kind]["faults"])


def measure_start(effort: Effort) -> Iterator[Row]:
    """CPU seconds beside Python's own start."""
    medians = start.measure(5)
    for name, (_, cpu) in medians.items():
        if name != start.PYTHON:
            yield Row("start", f"`{name}`", start.GOAL_SECONDS, cpu - medians[start.PYTHON][1], " s")


def measure_run(effort: Effort, images: int = 1280, epochs: int = 12) -> Iterator[Row]:
    """A whole run that cuts while it shrinks, and keeps its gates or folds them when it settles."""
    titles = {
        f"whole shrinking run / dense run, ResNet-20, {epochs} epochs of {images} images, {kind}": kind
        for kind in training.KINDS
    }
    wanted = {title: kind for title, kind in titles.items() if effort.match in title}
    ratios = training.bench_runs(images, epochs, wanted.values())
    for title, kind in wanted.items():
        yield Row("run", title, 0.75, ratios[kind][0])
        yield Row("run", f"{title}, epochs alone", None, ratios[kind][1])


def measure_deployment(
    effort: Effort, runtimes: tuple[str, ...] = ("onnxruntime", "openvino"), nets: tuple[str, ...] = NETS
) -> Iterator[Row]:
    """Batch 1 at 224 px, widths aligned to 16, half of the multiply-adds; nothing else may run on the machine."""
    for net in nets:
        wanted = [runtime for runtime in runtimes if effort.match in f"{TITLES[net]}, {runtime}"]
        if not wanted:
            continue
        networks, shares, example = contestants(net, 16)
        del networks["unaligned, folded"]
        for runtime in wanted:
            with use_threads(1):
                calls = {name: ready(model, example, runtime, 1) for name, model in networks.items()}
                times = interleave(calls, effort.seconds / 4, effort.rounds)  # by the wall clock
            del calls  # four networks of the size of VGG-16 fill gigabytes
            folded = paired_ratio(times["aligned, folded"], times["dense"]).value
            realised = (1 - folded) / (1 - shares["aligned, folded"])
            ours = runtime == "onnxruntime"  # the goals were set for it; the other is for comparison
            work = f"realised / theoretical cut, {TITLES[net]}, {runtime}, folded, aligned, batch 1"
            cut = Row("deployment", work, 0.95 if ours else None, realised, at_least=True)
            yield cut
            goal = 1.25 if net == "mobilenet_v2" else 1.10
            ratio = paired_ratio(times["generators kept"], times["plain, same widths"])
            work = f"generators kept / plain network of these widths, {TITLES[net]}, {runtime}"
            kept = Row.of("deployment", work, goal if ours else None, ratio)
            yield kept
            if False in (cut.met, kept.met):
                yield from measure_operations(TITLES[net], networks, example)
