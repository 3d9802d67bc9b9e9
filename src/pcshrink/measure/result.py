"""What :func:`pcshrink.measure.profile` gives back: plain numbers, and a table to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from pcshrink.common.tables import text_table
from pcshrink.config import Convention


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """The cost of one layer for one sample.

    Attributes:
        name: Module name; empty for the model itself.
        kind: ``conv``, ``linear``, ``matmul``, ``recurrent``, ``norm``, ``activation``, ``pool``, ``input``,
            ``other`` (parameters no counted operation uses), or ``gate`` for everything inside a gate.
        params: Parameters the layer owns; one that several layers share counts at the first.
        madds: Multiply-adds.
        mem_access: Kernel and output feature map, in numbers (not bytes), Eq. 16. The vector a classifier
            layer writes is no map and does not count.
        output_shape: As run, batch included; empty where nothing ran.
    """

    name: str
    kind: str
    params: int
    madds: int
    mem_access: int
    output_shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Cost of a network for one sample, in total and per layer.

    Attributes:
        convention: How it was counted, ``layers`` or ``paper``; belongs into every table made from this.
        madds: Multiply-adds of one sample, gates included.
        mem_access: Memory access of one sample (Eq. 16), gates included.
        params: Parameters of the model, each once, whether trained, frozen or unused.
        batch_size: How many samples the example held; divided out of all counts.
        layers: One row for each layer and kind, in the order they ran.
    """

    convention: Convention
    madds: int
    mem_access: int
    params: int
    batch_size: int
    layers: list[LayerCost] = field(repr=False)

    @property
    def gate_madds(self) -> int:
        """The part of ``madds`` that the gates cause."""
        return self._gates(lambda row: row.madds)

    @property
    def gate_mem_access(self) -> int:
        """The part of ``mem_access`` that the gates cause."""
        return self._gates(lambda row: row.mem_access)

    @property
    def gate_params(self) -> int:
        """The part of ``params`` that the gates hold."""
        return self._gates(lambda row: row.params)

    def _gates(self, value: Callable[[LayerCost], int]) -> int:
        return sum(value(row) for row in self.layers if row.kind == "gate")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        totals = {
            "convention": self.convention,
            "madds": self.madds,
            "mem_access": self.mem_access,
            "params": self.params,
            "gate_madds": self.gate_madds,
            "gate_mem_access": self.gate_mem_access,
            "gate_params": self.gate_params,
            "batch_size": self.batch_size,
        }
        rows = [asdict(row) | {"output_shape": list(row.output_shape)} for row in self.layers]
        return totals | {"layers": rows}

    def summary(self) -> str:
        """The totals in one line."""
        text = (
            f"{_millions(self.madds)} madds, {_millions(self.mem_access)} mem_access, "
            f"{_millions(self.params)} params for one sample ({self.convention} convention)"
        )
        if self.gate_params:
            madds, access = _millions(self.gate_madds), _millions(self.gate_mem_access)
            params = _millions(self.gate_params)
            text += f"; of these the gates {madds} madds, {access} mem_access, {params} params"
        return text

    def table(self) -> str:
        """All rows and the totals as aligned plain text."""
        head = ["layer", "kind", "output", "params", "madds", "mem_access"]
        body = [
            [
                row.name or "(model)",
                row.kind,
                "x".join(map(str, row.output_shape)) or "-",
                f"{row.params:,}",
                f"{row.madds:,}",
                f"{row.mem_access:,}",
            ]
            for row in self.layers
        ]
        total = ["total", "", "", f"{self.params:,}", f"{self.madds:,}", f"{self.mem_access:,}"]
        return text_table(body, "<<<>", head=head, total=total) + "\n" + self.summary()

    def __str__(self) -> str:
        """The table."""
        return self.table()


def _millions(number: int) -> str:
    return f"{number / 1e6:,.2f} M"
