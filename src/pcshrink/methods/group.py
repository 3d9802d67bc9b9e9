"""A group of channels as a user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from pcshrink.coupling.groups import ChannelGroup
from pcshrink.errors import ConfigError

if TYPE_CHECKING:
    from pcshrink.methods.base import Method


class Group:
    """Channels that leave together, as a user sees them.

    Attributes:
        name: The first layer that writes these channels.
        channels: How many there are.
        writers: The layers whose output channels they are.
        readers: The layers whose input channels they are.
        gates: The layers that carry the group's gates.
    """

    def __init__(self, source: ChannelGroup, method: Method[Any], k: int) -> None:
        self.name = source.name
        self.channels = source.channels
        self.writers = source.writers
        self.readers = source.readers
        self.gates = tuple(site.module for site in source.sites)
        self._method, self._k = method, k

    @property
    def k(self) -> int:
        """How many of the channels may leave; may be changed between steps."""
        return self._k

    @k.setter
    def k(self, value: int) -> None:
        if type(value) is not int or not 0 <= value < self.channels:
            message = f"k of group {self.name!r} must be a whole number from 0 to {self.channels - 1}; got {value!r}"
            raise ConfigError(message)
        self._k = value
        self._method.on_change()

    @property
    def running(self) -> Tensor:
        """What the channels are ranked by (C,): for the paper's method the running salience, mean over the gates."""
        return self._method.scores()[self.name]

    def __repr__(self) -> str:
        """Name, width and writers."""
        return f"Group({self.name!r}, channels={self.channels}, k={self.k}, writers={list(self.writers)})"
