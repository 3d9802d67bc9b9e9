"""How cost grows with layers and channels: attach, step, compact, save and load; one figure for all."""

from __future__ import annotations

import copy
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torchvision.models import ResNet, get_model
from torchvision.models.resnet import Bottleneck

import pcshrink as pcs
from benchmarks.performance.rows import Effort, Row
from benchmarks.performance.steps import MODES, step_of
from pcshrink.artifact import load, save
from pcshrink.report.chart import Chart
from pcshrink.report.draw import Axis, colour, standalone

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "growth.svg"
DEPTHS = (18, 34, 50, 101, 152)
WIDTHS = (32, 64, 128)  # of the inner layers of ResNet-50's first blocks
REPEATS = 3
WORK = ("attach", "step", "compact", "save", "load")
Costs = dict[str, float]
Points = list[tuple[float, Costs]]  # size -> cost


def of_depth(depth: int) -> tuple[float, Costs]:
    """Convolutions of a ResNet, and what it costs."""
    model = get_model(f"resnet{depth}")
    size = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    return float(size), cost(model, f"torchvision:resnet{depth}")


def of_width(width: int) -> tuple[float, Costs]:
    """Channels of a wider or narrower ResNet-50, and what it costs; no builder makes it, so it is not saved."""
    model = ResNet(Bottleneck, [3, 4, 6, 3], width_per_group=width)
    size = sum(module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d))
    return float(size), cost(model, None)


def cost(model: nn.Module, builder: str | None) -> Costs:
    """CPU seconds of each kind of work."""
    example = torch.randn(2, 3, 32, 32)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(prove=False))
    spent = {"step": timed(step_of(model, example, MODES[0], shrinker))}
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    model.eval()
    spent["compact"] = timed(lambda: pcs.compact(model, plan, example))
    small = pcs.compact(model, plan, example)
    if builder is not None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "net"
            spent["save"] = timed(lambda: save(place, small, plan, builder))
            spent["load"] = timed(lambda: load(place))
    pcs.detach_(model)
    copies = [copy.deepcopy(model) for _ in range(REPEATS + 1)]
    return {"attach": timed(lambda: pcs.attach_(copies.pop(), example))} | spent


def timed(call: Callable[[], object]) -> float:
    """The median of some calls after a first one, in CPU seconds."""
    call()
    taken = []
    for _ in range(REPEATS):
        gc.collect()
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def measure_growth(effort: Effort) -> Iterator[Row]:
    """Growth of the cost over growth of the size, from the smallest network to the largest; 1 is linear."""
    deep, wide = [of_depth(d) for d in DEPTHS], [of_width(w) for w in WIDTHS]
    FIGURE.write_text(draw(deep, wide))
    names = ("layers, ResNet-18 to ResNet-152", "channels, ResNet-50 of half to twice the inner width")
    for name, points in zip(names, (deep, wide), strict=True):
        (small, first), (large, last) = points[0], points[-1]
        for work in first:
            growth = (last[work] / first[work]) / (large / small)
            yield Row("growth", f"{work}: growth of cost / growth of {name}", None, growth)


def draw(deep: Points, wide: Points) -> str:
    """Cost against size, both as multiples of the smallest network: lines by layers, dots by channels."""
    steepest = max(costs[work] / deep[0][1][work] for _, costs in deep for work in WORK)
    longest = deep[-1][0] / deep[0][0]
    chart = Chart(
        "Cost of attaching, a step, compacting, saving and loading against the size of a ResNet; lines by number of "
        "convolutions (ResNet-18 to ResNet-152), dots by number of channels (ResNet-50)",
        Axis("times the smallest network (lines: convolutions, dots: channels)", 0, longest * 1.05),
        Axis("times its cost", 0, max(steepest, longest) * 1.05),
        [(work, colour(number)) for number, work in enumerate(WORK)],
    )
    for number, work in enumerate(WORK):
        xs, ys = relative(deep, work)
        chart.line(xs, ys, colour(number), work)
        if work in wide[0][1]:
            for x, y in zip(*relative(wide, work), strict=True):
                chart.dot(x, y, colour(number), work)
    return standalone(chart.svg())


def relative(points: Points, work: str) -> tuple[list[float], list[float]]:
    """Sizes and costs as multiples of those of the first."""
    (size, costs), *_ = points
    return [s / size for s, _ in points], [c[work] / costs[work] for _, c in points]
