"""Which channel every index of every axis belongs to, and what is known about it.

Every parameter axis starts with one fresh *unit* for each index. Operations tie units together (an add ties its
operands channel by channel) or pin them (a network output may not lose a channel). Units tied together leave together
or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FIXED = 0  # the unit of everything that can never leave


@dataclass(frozen=True)
class Site:
    """A place where a gate can make dead channels zero: the output or the first input of a module."""

    module: str
    at_input: bool = False


@dataclass(frozen=True)
class Origin:
    """The layer whose input feeds the gate of a channel axis; ``averaged`` are units on its other axes."""

    module: str
    axis: int
    units: Ids
    batch: int
    averaged: Ids


@dataclass(frozen=True)
class Channels:
    """One axis of one tensor.

    Attributes:
        units: The unit of each index; ``FIXED`` where the index can never leave.
        zero: Whether the values at an index are 0 as soon as its unit is dead.
        needs: The sites whose gates make ``zero`` true.
        why: What last broke ``zero``, for the refusal.
        heads: These are attention heads, which have no module boundary of their own.
    """

    units: Ids
    zero: Flags
    needs: frozenset[Site] = frozenset()
    why: str = ""
    heads: bool = False

    @staticmethod
    def of(units: Ids, *, zero: bool = False, why: str = "") -> Channels:
        """Channels that share one zero state."""
        return Channels(units, np.full(len(units), zero), why=why)

    def take(self, index: Ids | slice) -> Channels:
        """The channels at some indices."""
        return Channels(self.units[index], self.zero[index], self.needs, self.why, self.heads)

    def broken(self, why: str) -> Channels:
        """The same channels after an operation that does not keep zeros."""
        return Channels(self.units, np.zeros(len(self.zero), bool), why=why, heads=self.heads)

    def gated(self, site: Site) -> Channels:
        """The same channels behind a gate."""
        return Channels(self.units, np.ones(len(self.zero), bool), frozenset({site}), self.why)


@dataclass(frozen=True)
class Value:
    """What is known about one tensor: its channel axes, and the layer its values come straight from."""

    shape: tuple[int, ...]
    axes: dict[int, Channels] = field(default_factory=dict)
    origin: Origin | None = None

    def with_axes(self, axes: dict[int, Channels]) -> Value:
        """The same tensor with other knowledge about its channels."""
        return Value(self.shape, axes, self.origin)

    def at(self, axis: int) -> Channels | None:
        """The channels on an axis (negative counts from the end)."""
        return self.axes.get(axis % len(self.shape)) if self.shape else None


@dataclass
class AttributeFix:
    """``module.attribute`` (or one item of it) counts these units, so it changes when some of them leave.

    With ``shared`` it is this number divided by their count.
    """

    module: str
    attribute: str
    units: Ids
    shared: float | None = None

    def value(self, count: int) -> int | float:
        """What the attribute becomes when so many of the units are left."""
        return count if self.shared is None else self.shared / count


class Ledger:
    """All that the walk over the graph finds out: units, ties, pins, needs and attributes to correct."""

    def __init__(self) -> None:
        self.count = 1
        self.slots: list[tuple[str, int, Ids]] = []  # parameter name, axis, units
        self.ties: list[tuple[Ids, Ids]] = []
        self.pins: list[tuple[Ids, str]] = []
        self.needed: list[tuple[Ids, frozenset[Site]]] = []
        self.fixes: list[AttributeFix] = []
        self.writers: dict[str, Ids] = {}  # module -> units of its output channels
        self.readers: dict[str, Ids] = {}  # module -> units of its input channels
        self.gates: dict[Site, tuple[Ids, int, Origin]] = {}  # site -> units on its axis, axis, what feeds the gate
        self.averaged: list[tuple[Site, Ids]] = []  # units that a gate takes the mean over, once it is used

    def parameter(self, name: str, tensor: Tensor) -> Value:
        """Give every axis of a parameter or buffer its own units."""
        axes = {}
        for axis, size in enumerate(tensor.shape):
            if size > 1:
                units = np.arange(self.count, self.count + size)
                self.count += size
                self.slots.append((name, axis, units))
                axes[axis] = Channels.of(units)
        return Value(tuple(tensor.shape), axes)

    def pin(self, units: Ids, reason: str) -> None:
        """These units can never leave."""
        self.pins.append((units, reason))

    def tie(self, first: Ids, second: Ids, reason: str) -> None:
        """Units at equal positions leave together; whatever meets a fixed one is pinned."""
        if first.shape != second.shape:
            first, second = np.broadcast_arrays(first, second)
        fixed = (first == FIXED) | (second == FIXED)
        if fixed.any():
            self.pin(np.concatenate([first[fixed], second[fixed]]), reason)
        if not fixed.all():
            self.ties.append((first[~fixed], second[~fixed]))

    def require_zero(self, channels: Channels, reader: str) -> None:
        """A layer sums over these channels, so a dead one must be exactly zero here."""
        loose = ~channels.zero
        if loose.any():
            why = channels.why or "nothing makes the dead channels zero"
            self.pin(channels.units[loose], f"{reader} would read nonzero values of a dead channel: {why}")
        if channels.zero.any():
            self.needed.append((channels.units[channels.zero], channels.needs))

    def components(self) -> Ids:
        """The representative of every unit: the smallest unit that it is tied to, however indirectly."""
        root = np.arange(self.count)
        if not self.ties:
            return root
        left = np.concatenate([a for a, _ in self.ties])
        right = np.concatenate([b for _, b in self.ties])
        while True:
            low = np.minimum(root[left], root[right])
            np.minimum.at(root, root[left], low)
            np.minimum.at(root, root[right], low)
            while not np.array_equal(root, hop := root[root]):
                root = hop
            if np.array_equal(root[left], root[right]):
                return root
