"""The cost of a network whose gates choose for each input, measured while and after it is trained."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pcshrink.budget.allocate import Limit
from pcshrink.config import Convention
from pcshrink.measure.activity import Activity, activity
from pcshrink.train.outcome import Dynamic
from pcshrink.train.session import Session

IMAGES = 256  # training images to measure with between epochs


def measure_dynamic(session: Session, model: nn.Module) -> tuple[Dynamic, Dynamic]:
    """Measure on all evaluation images, counted by layers and as the paper does."""
    measured = activity(model, (images for images, _ in session.data.val.batches()))
    skipped = measured.skipped.to(session.fabric.device)
    sums = torch.stack([skipped.new_tensor(len(skipped)), skipped.sum(), skipped.square().sum()])
    ends = torch.stack([-skipped.min(), skipped.max()])
    if session.fabric.world_size > 1:
        sums = session.fabric.all_reduce(sums, reduce_op="sum")
        ends = session.fabric.all_reduce(ends, reduce_op="max")
    count, total, squares = sums.tolist()
    statistics = _Skipped(round(count), total / count, squares / count, -float(ends[0]), float(ends[1]))
    paper = measured.recounted(model, session.example[:1], "paper")
    return _summary(measured, statistics), _summary(paper, statistics)


class _Skipped(NamedTuple):
    images: int
    mean: float
    mean_square: float
    least: float
    most: float


def _summary(measured: Activity, skipped: _Skipped) -> Dynamic:
    whole = measured.dense.madds + measured.own.madds
    return Dynamic(
        convention=measured.convention, images=skipped.images, madds=whole - skipped.mean,
        madds_std=max(skipped.mean_square - skipped.mean**2, 0.0) ** 0.5,
        madds_least=whole - skipped.most, madds_most=whole - skipped.least,
        dense_madds=measured.dense.madds, gate_madds=measured.own.madds,
        params=measured.params, mem_access=measured.mem_access, shares=measured.shares,
    )  # fmt: skip


class Gauge:
    """Measures what a session's network costs now, always on the same training images."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._last: Activity | None = None

    @functools.cached_property
    def images(self) -> list[Tensor]:
        """The first ones of the first epoch."""
        images: list[Tensor] = []
        for batch, _ in self.session.data.train.batches(0):
            images.append(batch[: IMAGES - sum(map(len, images))])
            if sum(map(len, images)) >= IMAGES:
                break
        return images

    def madds(self, convention: Convention) -> tuple[float, float]:
        """Multiply-adds of the mean input, and their share of the dense network's; the same in all processes."""
        session = self.session
        measured = self._last = activity(session.best, self.images, convention, earlier=self._last)
        madds = measured.madds
        if session.fabric.world_size > 1:
            mean = torch.tensor(madds, dtype=torch.float64, device=session.fabric.device)
            madds = float(session.fabric.all_reduce(mean, reduce_op="mean"))
        return madds, madds / measured.dense.madds


class MeasuredTarget:
    """A limit on the mean cost together with its measure: what a dynamic method is given to meet."""

    def __init__(self, budget: Limit, gauge: Gauge) -> None:
        self.budget, self.gauge = budget, gauge

    @property
    def dense(self) -> float:
        """What the network costs without gates."""
        return self.budget.dense

    @property
    def limit(self) -> float:
        """What it may cost."""
        return self.budget.limit

    def cost(self) -> float:
        """What it costs now."""
        return self.gauge.madds(self.budget.config.convention)[0]
