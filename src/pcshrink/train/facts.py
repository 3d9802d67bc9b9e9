"""What is found out while a run goes on, for its checkpoints and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from pcshrink.budget.cost_model import LayerTimes
from pcshrink.measure import profile


@dataclass(frozen=True)
class Costs:
    """What a network costs, in both counting conventions."""

    params: int
    madds: int
    mem_access: int
    paper_madds: int
    paper_mem_access: int

    @classmethod
    def of(cls, model: nn.Module, example: object) -> Costs:
        """Count."""
        layers, paper = profile(model, example), profile(model, example, "paper")
        return cls(layers.params, layers.madds, layers.mem_access, paper.madds, paper.mem_access)


@dataclass
class Dense:
    """The network before it shrinks: its costs, and how good it was when the gates went on."""

    costs: Costs
    score: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Costs and score side by side."""
        return asdict(self.costs) | self.score


@dataclass(frozen=True)
class Cut:
    """The end of the shrinking phase, where everything that is to go is cut or masked.

    Attributes:
        gated_error: Before the cut.
        masked_error: With the channels that go forced to zero.
        compact_error: Without them, where they are cut out at once.
        loss_jump: Loss after the cut minus loss before it, on the evaluation images.
        leak: The largest factor that any evaluation image gives to a channel that goes.
        highest: The highest score of a channel that goes; None where scores do not fall to zero.
        final_masked_error: At the end of the run, for a network that was masked until then.
        final_gated_error: The same with the mask off.
        final_leak: The leak then.
    """

    gated_error: float
    masked_error: float
    loss_jump: float
    leak: float
    highest: float | None
    compact_error: float | None = None
    final_masked_error: float | None = None
    final_gated_error: float | None = None
    final_leak: float | None = None


@dataclass(frozen=True)
class Aim:
    """Widths that were chosen by measuring, for a latency budget."""

    limit: float
    runtime: str
    reached: float
    note: str
    keep: dict[str, int]


@dataclass
class Timed:
    """What was measured for a latency budget or for prices; the stopwatch alone writes it.

    Attributes:
        times: What the layers take.
        aim: For a latency budget: the widths that were chosen.
    """

    times: LayerTimes | None = None
    aim: Aim | None = None


@dataclass(frozen=True)
class Size:
    """What is left at an epoch's end if everything dead were cut; for a dynamic method, what the mean input costs."""

    madds: int
    madds_share: float
    dead: int | None


@dataclass
class Facts:
    """All of them.

    Attributes:
        dense: The uncompressed network.
        channels: How many channels could shrink at all.
        limit: The largest cost allowed and the dense one, for a budget that can be counted.
        widths: What each group is to keep, where another network's widths are taken.
        size: As of the last epoch.
        cut: The end of the shrinking phase.
        timed: What was measured by the clock.
    """

    dense: Dense | None = None
    channels: int = 0
    limit: tuple[float, float] | None = None
    widths: dict[str, int] | None = None
    size: Size | None = None
    cut: Cut | None = None
    timed: Timed = field(default_factory=Timed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Facts:
        """Read ``to_dict`` back."""
        dense = data["dense"]
        timed = data.get("timed", data)  # checkpoints of earlier versions have its entries among the others
        return cls(
            dense=Dense(Costs(**dense["costs"]), dict(dense["score"])) if dense else None,
            channels=int(data["channels"]),
            limit=(float(data["limit"][0]), float(data["limit"][1])) if data["limit"] else None,
            widths={str(n): int(w) for n, w in data["widths"].items()} if data["widths"] else None,
            size=Size(**data["size"]) if data["size"] else None,
            cut=Cut(**data["cut"]) if data["cut"] else None,
            timed=Timed(
                times=LayerTimes(**timed["times"]) if timed["times"] else None,
                aim=Aim(**timed["aim"]) if timed["aim"] else None,
            ),
        )
