"""What a finished run has to say about its budget and about what single inputs cost, as its file keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pcshrink.budget.config import LATENCY_TOLERANCE, TOLERANCE

if TYPE_CHECKING:
    from pcshrink.config import Convention

NOT_SHOWN = "not shown to be met"  # the middle of a measurement is over the limit, its lower end is not


@dataclass(frozen=True, kw_only=True)
class BudgetOutcome:
    """The limit of a budget, and what was reached.

    Attributes:
        metric: What is limited: ``madds``, ``params``, ``mem_access`` or ``latency``.
        limit: The most that is allowed; of a latency as a share of the dense network's.
        reached: What the network costs; with a dynamic method, the mean input.
        share: That as a share of the dense network's.
        convention: How costs are counted; None for a latency.
        runtime: Where the latency was measured; None for costs that are counted.
        low: The least that the measurement allows, of a latency.
        high: The most that it allows.
        note: What there is to say about widths found by timing.
    """

    metric: str
    limit: float
    reached: float
    share: float | None = None
    convention: str | None = None
    runtime: str | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def timed(self) -> bool:
        """Whether time is limited, which is measured and not counted."""
        return self.runtime is not None

    @property
    def missed(self) -> bool:
        """Whether the network costs more, beyond what a measurement may be wrong by."""
        tolerance = LATENCY_TOLERANCE if self.timed else TOLERANCE
        cost = self.reached if self.low is None else self.low
        return cost > (1 + tolerance) * self.limit

    @property
    def doubtful(self) -> bool:
        """Whether the measurement says that the limit is exceeded, but allows that it is not."""
        return self.timed and not self.missed and self.reached > (1 + LATENCY_TOLERANCE) * self.limit

    @property
    def doubt(self) -> str:
        """``MISSED``, or that it is not known; empty where the budget is met."""
        return "MISSED" if self.missed else NOT_SHOWN if self.doubtful else ""

    def line(self, *, by_mean_input: bool = False) -> str:
        """The budget and what was reached, in words."""
        missed = f"; {self.doubt}" if self.doubt else ""
        if self.timed:
            line = f"budget: {self.limit:g} of the dense latency ({self.runtime}), measured {self.reached:.3f}"
            spread = "" if self.low is None else f" ({self.low:.3f} to {self.high:.3f})"
            return line + spread + missed + (f"; {self.note}" if self.note else "")
        reached = f"reached {self.reached:,.0f} ({self.convention} convention)"
        reached += " by the mean input" if by_mean_input else ""
        return f"budget: {self.metric} {self.limit:,.0f}, {reached}{missed}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the result's file: what belongs to this kind of budget."""
        cost = {"reached": self.reached, "share": self.share}
        if not self.timed:
            return {"metric": self.metric, "convention": self.convention, "limit": self.limit} | cost
        where = {"metric": self.metric, "runtime": self.runtime, "limit": self.limit, "note": self.note}
        return where | cost | {"low": self.low, "high": self.high}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BudgetOutcome:
        """Read ``to_dict`` back; older files have the runtime of a latency where the convention of costs is."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        if data["metric"] == "latency" and "runtime" not in data:
            known |= {"runtime": known.pop("convention")}
        return cls(**known)


@dataclass(frozen=True)
class Dynamic:
    """What the inputs of a whole data set cost, over all processes.

    Attributes:
        convention: How multiply-adds are counted.
        images: How many inputs.
        madds: Mean.
        madds_std: Standard deviation.
        madds_least: Of the cheapest input.
        madds_most: Of the dearest one.
        dense_madds: Without gates.
        gate_madds: Of the gates themselves.
        params: With those of the gates.
        mem_access: With that of the gates.
        shares: Layer -> which share of its multiply-adds ran.
    """

    convention: Convention
    images: int
    madds: float
    madds_std: float
    madds_least: float
    madds_most: float
    dense_madds: int
    gate_madds: int
    params: int
    mem_access: int
    shares: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the result's file."""
        return asdict(self)
