"""The exact cost of the compact network as a quick function of the groups' widths.

A convolution or linear layer costs its kernel's size times the places it is applied at, and its kernel's size is the
product of the widths of its axes; output maps and gates grow in proportion to single widths. One profile of a
narrower network checks that this is all. Where it is not (norms and activations of the paper's convention, attention
products), the rest also grows in proportion to single widths and is measured, with each group narrowed in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pcshrink.budget.config import METRICS
from pcshrink.config import Convention, Metric, Quantity
from pcshrink.measure import Profile, profile
from pcshrink.shrinker import Shrinker
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gate import GATE, gate_class
from pcshrink.surgery.gates import remove_gates_
from pcshrink.surgery.plan import PrunePlan

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One axis of a parameter: how many of its indices stay at given widths."""

    fixed: float
    per_width: Floats  # (groups,)

    def alive(self, widths: Floats) -> float:
        """Indices that stay."""
        return self.fixed + float(self.per_width @ widths)


class Term(NamedTuple):
    """The product of some widths, at a price each; the layer is named where they are those of its kernel."""

    axes: list[Axis]
    prices: dict[Quantity, float]
    layer: str = ""


@dataclass(frozen=True)
class LayerTimes:
    """What the layers of a network take: so much however narrow they are, and so much for each number of the kernel.

    Attributes:
        dense: Seconds of all layers of the uncompressed network together.
        fixed: Layer -> seconds.
        each: Layer -> seconds for one number of its kernel.
    """

    dense: float
    fixed: dict[str, float]
    each: dict[str, float]


@dataclass
class CostModel:
    """Costs of the compact network for any widths; made by ``CostModel.of``.

    Attributes:
        names: The groups, in the order of the widths.
        full: Their widths now.
    """

    names: list[str]
    full: Floats
    kernels: list[Term]
    base: dict[Quantity, float] = field(default_factory=dict)
    slopes: dict[Quantity, Floats] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        shrinker: Shrinker,
        example_input: object,
        *,
        gates: Literal["keep", "fold"] = "keep",
        convention: Convention = "layers",
        before: CostModel | None = None,
    ) -> CostModel:
        """Measure a gated model.

        Args:
            shrinker: What ``attach_`` gave.
            example_input: As for ``attach_``.
            gates: Whether the gates stay, and so count, in the compact network.
            convention: How madds and mem_access are counted.
            before: The costs before channels were cut; what they say holds on, which is seen from two measurements
                instead of one for each group.
        """
        names = [g.name for g in shrinker.groups]
        full = np.array([g.channels for g in shrinker.groups], dtype=np.float64)
        meter = _Meter(shrinker, example_input, gates, convention)
        terms = _kernels(shrinker, profile(_bare(shrinker.model), example_input))
        if gates == "keep":
            terms += _gates(shrinker)
        model = cls(names, full, terms)
        model._fit(shrinker, meter, before)
        return model

    def _fit(self, shrinker: Shrinker, meter: _Meter, before: CostModel | None) -> None:
        whole = meter({})
        halves = {g.name: torch.arange(g.channels) < max(g.channels // 2, 1) for g in shrinker.groups}
        narrow, widths = meter(halves), np.maximum(self.full // 2, 1)
        if before is not None and before.names == self.names:
            self.slopes, self.base = {m: before.slopes[m] for m in METRICS}, {m: before.base[m] for m in METRICS}
            if self._says(self.full, whole) and self._says(widths, narrow):
                return
        self.slopes = {m: np.zeros(len(self.full)) for m in METRICS}
        self.base = dict.fromkeys(METRICS, 0.0)
        self.base = {m: getattr(whole, m) - self.cost(self.full, m) for m in METRICS}
        if self._says(widths, narrow):
            return
        rest = dict(self.base)
        for index, name in enumerate(self.names):
            if widths[index] < self.full[index]:
                narrow = meter({name: halves[name]})
                one = self.full.copy()
                one[index] = widths[index]
                for m in METRICS:
                    left = getattr(narrow, m) - self._by_kernels(one, m)
                    self.slopes[m][index] = (rest[m] - left) / (self.full[index] - one[index])
        self.base = {m: rest[m] - float(self.slopes[m] @ self.full) for m in METRICS}

    def _says(self, widths: Floats, measured: Profile) -> bool:
        return all(abs(getattr(measured, m) - self.cost(widths, m)) < 0.5 for m in METRICS)

    def set_times(self, times: LayerTimes) -> None:
        """Know what the layers take as well: the quantity "latency", in seconds."""
        self.base["latency"] = sum(times.fixed.values())
        self.slopes["latency"] = np.zeros(len(self.full))
        for term in self.kernels:
            if term.layer in times.each:
                term.prices["latency"] = times.each[term.layer]

    def _by_kernels(self, widths: Floats, metric: Quantity) -> float:
        priced = ((term.axes, term.prices.get(metric, 0.0)) for term in self.kernels)
        return sum(price * math.prod(axis.alive(widths) for axis in axes) for axes, price in priced if price)

    def cost(self, widths: Floats, metric: Quantity) -> float:
        """What the compact network costs when the groups keep so many channels."""
        return self._by_kernels(widths, metric) + self.base[metric] + float(self.slopes[metric] @ widths)

    def prices(self, metric: Quantity) -> dict[str, float]:
        """What one channel of each group costs now, relative to the mean over all channels."""
        whole = self.cost(self.full, metric)
        each = []
        for index in range(len(self.full)):
            narrower = self.full.copy()
            narrower[index] -= 1
            each.append(whole - self.cost(narrower, metric))
        mean = float(np.dot(each, self.full) / self.full.sum())
        return {name: price / mean for name, price in zip(self.names, each, strict=True)}

    def widths(self, kept: Mapping[str, float]) -> Floats:
        """Widths by group name as an array; groups not named stay whole."""
        return np.array([kept.get(n, w) for n, w in zip(self.names, self.full, strict=True)], dtype=np.float64)


def cost_of(model: nn.Module, example_input: object, metric: Metric, convention: Convention) -> int:
    """One cost of a model as it is."""
    return int(getattr(profile(model, example_input, convention), metric))


def _bare(model: nn.Module) -> nn.Module:
    copied = apply_plan(model, PrunePlan({}, {}, {}, {}, {}, ()))
    remove_gates_(copied)
    return copied


class _Meter:
    """Profiles the compact network for any choice of channels."""

    def __init__(self, shrinker: Shrinker, example_input: object, gates: str, convention: Convention) -> None:
        self._shrinker, self._input, self._gates, self._convention = shrinker, example_input, gates, convention

    def __call__(self, keep: Mapping[str, torch.Tensor]) -> Profile:
        small = apply_plan(self._shrinker.model, self._shrinker.plan(keep))
        if self._gates == "fold":
            remove_gates_(small)
        return profile(small, self._input, self._convention)


class _Axes:
    """Which groups the indices of an axis belong to."""

    def __init__(self, shrinker: Shrinker) -> None:
        coupling = shrinker.coupling
        self._root = coupling.root
        self._owner = np.full(coupling.ledger.count, -1)
        for index, group in enumerate(coupling.groups):
            self._owner[group.roots] = index
        self._channels = np.array([g.channels for g in coupling.groups], dtype=np.float64)

    def of(self, units: npt.NDArray[np.int64]) -> Axis:
        owner = self._owner[self._root[units]]
        counts = np.bincount(owner[owner >= 0], minlength=len(self._channels)) / self._channels
        return Axis(float((owner < 0).sum()), counts)


def _kernels(shrinker: Shrinker, places: Profile) -> list[Term]:
    """Every parameter, and the output map of every layer, with what one of its numbers costs in each metric."""
    find, ledger = _Axes(shrinker), shrinker.coupling.ledger
    rows = {row.name: row for row in places.layers if row.kind in ("conv", "linear")}
    axes: dict[str, list[Axis]] = {}
    for name, _, units in ledger.slots:
        axes.setdefault(name, []).append(find.of(units))
    terms: list[Term] = []
    for name, parameter in shrinker.model.named_parameters():
        module, _, leaf = name.rpartition(".")
        if GATE in name.split("."):
            continue
        price: dict[Quantity, float] = {"params": 1.0, "madds": 0.0, "mem_access": 0.0}
        kernel = leaf == "weight" and module in rows
        if kernel:
            row = rows[module]
            price |= {"madds": row.madds / parameter.numel(), "mem_access": 1.0}
            out = ledger.writers.get(module)
            if out is not None:
                cost = (row.mem_access - parameter.numel()) / len(out)
                terms.append(Term([find.of(out)], {"mem_access": cost}))
        terms.append(Term(axes.get(name, []), price, module if kernel else ""))
    return terms


def _gates(shrinker: Shrinker) -> list[Term]:
    find, terms = _Axes(shrinker), list[Term]()
    for spec, own, fed in shrinker.method.sites.values():
        for role, costs in gate_class(spec.kind).costs(spec).items():
            price: dict[Quantity, float] = {metric: costs[metric] for metric in METRICS}
            terms.append(Term([find.of(own if role == "own" else fed)], price))
    return terms
