"""A training step: with gates beside dense, and of a cut network beside the whole one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import pcshrink as pcs
from benchmarks.latency import plan_at
from benchmarks.performance.bounds import measure_convolutions, measure_kinds
from benchmarks.performance.rows import Effort, Row
from pcshrink.measure.layers import layers_of
from pcshrink.measure.timing import interleave, paired_ratio
from pcshrink.models import create
from pcshrink.train.quick_norms import quick_norms

Step = Callable[[], object]


@dataclass(frozen=True)
class Mode:
    """How a step computes."""

    name: str
    bf16: bool = False
    channels_last: bool = False
    compiled: bool = False


MODES = (
    Mode("eager"),
    Mode("channels_last", channels_last=True),
    Mode("bf16", bf16=True),
    Mode("bf16 channels_last", bf16=True, channels_last=True),
)
COMPILED = (Mode("compiled", compiled=True), Mode("compiled bf16", bf16=True, compiled=True))
ALIGNMENTS: dict[str, int | dict[str, int]] = {"16 and 8": {"layer[23].*": 16, "*": 8}, "8": 8, "1": 1}
BLENDS = (0.0, 0.1, 0.2, 0.3, 0.4)  # 0 takes no blending at all, so it is compiled once more than the others


@dataclass(frozen=True)
class Case:
    """A network and what it is trained on."""

    name: str
    title: str
    pixels: int
    batch: int
    goal: float
    classes: int = 10

    def model(self) -> nn.Module:
        """The network, the same weights each time."""
        torch.manual_seed(0)
        return create(self.name)

    def images(self, count: int) -> torch.Tensor:
        """So many made-up images."""
        return torch.randn(count, 3, self.pixels, self.pixels, generator=torch.Generator().manual_seed(1))


CASES = (
    Case("resnet20", "ResNet-20, batch 128", 32, 128, 1.08),
    Case("torchvision:resnet18", "ResNet-18 at 64 px, batch 32", 64, 32, 1.08),
    Case("torchvision:mobilenet_v2", "MobileNetV2 at 64 px, batch 32", 64, 32, 1.15),
)


def step_of(model: nn.Module, x: torch.Tensor, mode: Mode, shrinker: pcs.Shrinker | None = None) -> Step:
    """One optimizer step on x as the trainer takes it, with penalty and step of the shrinker if there is one."""
    y = torch.randint(0, 10, (len(x),), generator=torch.Generator().manual_seed(2))
    if mode.channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    forward: Any = torch.compile(model) if mode.compiled else model

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=mode.bf16), quick_norms(wanted=not mode.compiled):
            scores = forward(x)
        loss = F.cross_entropy(scores.float(), y)
        if shrinker is not None:
            loss = loss + shrinker.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if shrinker is not None:
            shrinker.step()

    return step


def gated_step(case: Case, mode: Mode) -> Step:
    """A step with gates in the middle of a shrinking phase."""
    model = case.model()
    shrinker = pcs.attach_(model, case.images(2), pcs.ShrinkConfig(prove=False))
    shrinker.method.steps = 500
    return step_of(model, case.images(case.batch), mode, shrinker)


def measure_steps(effort: Effort, cases: tuple[Case, ...] = CASES, modes: tuple[Mode, ...] = MODES) -> Iterator[Row]:
    """Gated, with penalty and step, over dense."""
    for case in cases:
        for mode in modes:
            work = f"gated step / dense step, {case.title}, {mode.name}"
            if effort.match not in work:
                continue
            calls = {"dense": step_of(case.model(), case.images(case.batch), mode), "gated": gated_step(case, mode)}
            times = interleave(calls, effort.seconds, effort.rounds, clock=time.process_time)
            yield Row.of("step", work, case.goal, paired_ratio(times["gated"], times["dense"]))
            torch.compiler.reset()


def measure_compiled(effort: Effort) -> Iterator[Row]:
    """The same in compiled modes, and how often a network is compiled whose gates become constants step by step."""
    yield Row("compiled", f"graphs compiled while the blend takes {len(BLENDS)} values", 2, count_compilations())
    for row in measure_steps(effort, modes=COMPILED):
        yield replace(row, part="compiled")


def count_compilations() -> int:
    """Graphs that are compiled for a small gated network while its blend grows; without and with a blend make two."""
    case = Case("resnet20", "", 8, 2, 0.0)
    model = case.model().train()
    shrinker = pcs.attach_(model, case.images(2), pcs.ShrinkConfig(prove=False))
    graphs = []

    def counted(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(inputs)
        return graph.forward

    forward: Any = torch.compile(model, backend=counted)
    for share in BLENDS:
        shrinker.settle(share)
        forward(case.images(2)).sum().backward()
        shrinker.method.forget_pass()
    torch.compiler.reset()
    return len(graphs)


def measure_compact(effort: Effort, share: float = 0.43) -> Iterator[Row]:
    """The step of a network with this share of its multiply-adds over that of the whole one, in bfloat16."""
    case, mode = CASES[0], Mode("bf16", bf16=True, channels_last=True)
    model, example = case.model(), case.images(2)
    layers = layers_of(case.model(), example)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(prove=False))
    small: dict[str, nn.Module] = {}
    for title, align in ALIGNMENTS.items():
        plan, left = plan_at(shrinker, layers, share, align)
        suffix = f"align {title}, {left:.2f} of the madds"
        small[f"folded, {suffix}"] = pcs.compact(model, plan, example, gates="fold")
        small[f"generators kept, {suffix}"] = pcs.compact(model, plan, example)
    calls = {"dense": step_of(case.model(), case.images(case.batch), mode)}
    for name, net in small.items():
        calls[name] = step_of(net, case.images(case.batch), mode)
    times = interleave(calls, effort.seconds, effort.rounds, clock=time.process_time)
    for name in small:
        goal = 0.6 if name.startswith("folded, align") and "align 1," not in name else None
        work = f"compact step / dense step, {case.title}, {mode.name}, {name}"
        yield Row.of("compact", work, goal, paired_ratio(times[name], times["dense"]))
    first = next(iter(small))
    yield from measure_kinds(calls["dense"], calls[first], first.rpartition(", ")[0])
    yield from measure_convolutions(effort)
