"""The convolutions of a network as methods see them that gate layers one by one, whatever group they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from pcshrink.coupling.groups import Coupling
from pcshrink.coupling.units import FIXED, Ids, Site
from pcshrink.surgery.gate import GateSpec
from pcshrink.surgery.plan import GateSite


@dataclass(frozen=True)
class ConvLayer:
    """A convolution and where it stands.

    Attributes:
        name: Of the module.
        conv: The module.
        site: Where its output is complete: behind its norm, if it has one.
        stem: It reads the network's input.
        shortcut: A 1 x 1 convolution beside a block: it reads what another reads, and is added to what another writes.
        summed: Other layers write the same channels, so its output is added to theirs.
        reads: The units of its input channels.
        writes: The units of its output channels.
    """

    name: str
    conv: _ConvNd
    site: Site
    stem: bool
    shortcut: bool
    summed: bool
    reads: Ids
    writes: Ids

    @property
    def pointwise(self) -> bool:
        """Whether it looks at single positions."""
        return all(size == 1 for size in self.conv.kernel_size)

    def gate_site(self, site: Site) -> GateSite:
        """A gate at some place that is for this layer."""
        spec = GateSpec(
            module=site.module, at_input=False, axis=1, channels=len(self.writes), repeat=1,
            source=self.name, source_axis=1, in_features=len(self.reads),
        )  # fmt: skip
        return GateSite(spec, self.writes, self.reads)


def conv_layers(model: nn.Module, coupling: Coupling) -> Iterator[ConvLayer]:
    """All convolutions that ran, in the order they ran."""
    ledger, root = coupling.ledger, coupling.root
    last = {origin.module: site for site, (_, _, origin) in ledger.gates.items() if not site.at_input}
    convs = {name: model.get_submodule(name) for name in last}
    plain = {name: conv for name, conv in convs.items() if _is_convolution(conv)}
    read = {name: _key(root[ledger.readers[name]]) for name in plain}
    wrote = {name: _key(root[ledger.writers[name]]) for name in plain}
    for name, conv in plain.items():
        single = {other for other, c in plain.items() if other != name and c.groups == 1}
        summed = any(wrote[other] == wrote[name] for other in single)
        beside = any(read[other] == read[name] for other in single)
        small = all(size == 1 for size in conv.kernel_size)
        yield ConvLayer(
            name, conv, last[name], stem=bool((ledger.readers[name] == FIXED).all()),
            shortcut=small and summed and beside, summed=summed,
            reads=_units(ledger.readers[name], conv.in_channels),
            writes=_units(ledger.writers[name], conv.out_channels),
        )  # fmt: skip


def _is_convolution(module: nn.Module) -> TypeGuard[_ConvNd]:
    return isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd)


def _units(units: Ids, channels: int) -> Ids:
    """One for each channel; a layer that is called on several tensors has no such units, so its channels stay."""
    return units if len(units) == channels else np.full(channels, FIXED)


def _key(units: Ids) -> bytes:
    return np.sort(units).tobytes()
