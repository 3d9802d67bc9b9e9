"""The filters behind the channels of a group, as rows of one matrix, whatever layers they are spread over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.coupling.units import Ids
from pcshrink.errors import ConfigError

SHIFTS = ("bias", "running_mean")  # what makes a channel nonzero although its filter is zero


@dataclass(frozen=True)
class Rows:
    """One axis of a tensor: which of its indices belong to which channel.

    Attributes:
        name: The tensor.
        axis: Its axis.
        index: (C, most) the indices of each channel, filled up with the length of the axis.
    """

    name: str
    axis: int
    index: Tensor

    def of(self, tensor: Tensor) -> Tensor:
        """What belongs to each channel (C, ...), zeros where one has less than others."""
        parts = tensor.detach().movedim(self.axis, 0).flatten(1) if tensor.ndim > 1 else tensor.detach()[:, None]
        parts = torch.cat([parts, parts.new_zeros(1, parts.shape[1])])
        return parts[self.index.to(tensor.device)].flatten(1)

    @torch.no_grad()
    def scale_(self, tensor: Tensor, factor: Tensor) -> None:
        """Multiply what belongs to each channel by a factor (C,)."""
        size = tensor.shape[self.axis]
        each = factor.new_ones(size + 1)
        each[self.index.to(factor.device)] = factor[:, None].expand(self.index.shape)
        shape = [1] * tensor.ndim
        shape[self.axis] = size
        tensor.mul_(each[:size].reshape(shape).to(tensor))


class Filters:
    """All filters of one group.

    Args:
        model: The model they are in.
        coupling: Which parameter axes belong together.
        group: The group.
        method: Who asks, for messages.

    Raises:
        ConfigError: A layer that writes the group has no weight of its own.
    """

    def __init__(self, model: nn.Module, coupling: Coupling, group: ChannelGroup, method: str) -> None:
        ledger = coupling.ledger
        self._tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        number = channel_numbers(coupling, group)
        written = np.concatenate([ledger.writers[w] for w in group.writers])
        self.weights: list[Rows] = []
        self.shifts: list[Rows] = []
        for name, axis, units in ledger.slots:
            channel = number[coupling.root[units]]
            if name.rpartition(".")[2] in SHIFTS and (channel >= 0).any():
                self.shifts.append(Rows(name, axis, _places(channel, group.channels)))
            writes = np.where(np.isin(units, written), channel, -1)
            if (writes >= 0).any():
                self.weights.append(Rows(name, axis, _places(writes, group.channels)))
        self._check(group, method)

    def _check(self, group: ChannelGroup, method: str) -> None:
        """The layers must have weights of their own, which are used as they are."""
        owners = {rows.name.rpartition(".")[0] for rows in self.weights}
        for writer in group.writers:
            if writer not in owners:
                message = (
                    f"method {method} works on filters, but the weight of {writer!r} (group {group.name!r}) is "
                    f"computed from others; make it a plain parameter, or leave the layer out by exclude: [{writer!r}]"
                )
                raise ConfigError(message)

    def matrix(self) -> Tensor:
        """One filter in each row (C, D): those of all writers of a channel side by side."""
        return torch.cat([rows.of(self._tensors[rows.name]) for rows in self.weights], dim=1)

    def norms(self) -> Tensor:
        """The L2 norms of the filters of each writer (W, C)."""
        return torch.stack([rows.of(self._tensors[rows.name]).norm(dim=1) for rows in self.weights])

    def zero_(self, chosen: Tensor, *, shifts: bool) -> None:
        """Set the filters of some channels to zero.

        Args:
            chosen: Which (C,).
            shifts: Also biases and running means, so that nothing at all is left of the channels.
        """
        for rows in (*self.weights, *(self.shifts if shifts else ())):
            rows.scale_(self._tensors[rows.name], (~chosen).to(torch.float32))

    def limit_(self, largest: Tensor) -> None:
        """Shrink filters whose norm is above its limit (W, C) to it; a limit of 0 is none."""
        norms = self.norms()
        factors = torch.where((largest > 0) & (norms > largest), largest / norms, torch.ones_like(norms))
        for rows, factor in zip(self.weights, factors, strict=True):
            rows.scale_(self._tensors[rows.name], factor)


def axis_rows(coupling: Coupling, group: ChannelGroup, name: str, axis: int) -> Rows:
    """Which indices of one axis of a tensor belong to which channel of a group."""
    units = next(units for slot, at, units in coupling.ledger.slots if (slot, at) == (name, axis))
    return Rows(name, axis, _places(channel_numbers(coupling, group)[coupling.root[units]], group.channels))


def norm_scale(model: nn.Module, coupling: Coupling, group: ChannelGroup) -> Rows | None:
    """The scale of the first norm that a gate of the group sits on; None if it sits on no norm."""
    vectors = {f"{site.module}.weight" for site in group.sites if not site.at_input}
    parameters = dict(model.named_parameters())
    for name, axis, _ in coupling.ledger.slots:
        if name in vectors and name in parameters and parameters[name].ndim == 1:
            return axis_rows(coupling, group, name, axis)
    return None


def channel_numbers(coupling: Coupling, group: ChannelGroup) -> Ids:
    """Component -> channel of the group; -1 for those of other groups."""
    number = np.full(coupling.ledger.count, -1)
    number[group.roots] = np.arange(group.channels)
    return number


def _places(channel: Ids, channels: int) -> Tensor:
    """Channel of each index (-1: none) -> the indices of each channel (C, most)."""
    counts = np.bincount(channel[channel >= 0], minlength=channels)
    index = np.full((channels, int(counts.max())), len(channel))
    taken = np.zeros(channels, np.int64)
    for place in np.flatnonzero(channel >= 0):
        index[channel[place], taken[channel[place]]] = place
        taken[channel[place]] += 1
    return torch.as_tensor(index)
