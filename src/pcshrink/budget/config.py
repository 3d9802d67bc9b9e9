"""What the compact network may cost, as a user says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pcshrink.config import Convention, Metric, Quantity, is_number
from pcshrink.errors import ConfigError
from pcshrink.runtime.registry import DEFAULT_RUNTIME, RUNTIMES

METRICS: tuple[Metric, ...] = ("madds", "params", "mem_access")
# A budget is met if the network costs at most so much more; time is not steered as closely as what can be counted.
TOLERANCE, LATENCY_TOLERANCE = 0.01, 0.05


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """What the compact network may cost: one of four, a share of the dense network (up to 1) or a number.

    Attributes:
        madds: Multiply-adds of one sample.
        params: Parameters.
        mem_access: The paper's memory access cost.
        latency: Measured time of the folded network, as a share of the dense one's.
        convention: How madds and mem_access are counted; see ``docs/metrics.md``.
        runtime: Where latency is measured.
        batch: Batch size for latency.
        threads: Threads for latency; by default as many as torch uses.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    madds: float | None = None
    params: float | None = None
    mem_access: float | None = None
    latency: float | None = None
    convention: Convention = "layers"
    runtime: str = DEFAULT_RUNTIME
    batch: int = 1
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check that exactly one limit is given, and that it makes sense."""
        given = {name: getattr(self, name) for name in (*METRICS, "latency") if getattr(self, name) is not None}
        if len(given) != 1:
            message = "give exactly one of madds, params, mem_access and latency, for example {madds: 0.43}"
            raise ConfigError(message)
        name, value = next(iter(given.items()))
        if not is_number(value) or value <= 0 or (name == "latency" and value >= 1):
            wanted = "a share above 0 and below 1" if name == "latency" else "a share or a number above 0"
            message = f"{name} must be {wanted}; got {value!r}"
            raise ConfigError(message)
        RUNTIMES.check(self.runtime)
        for name in ("batch", "threads"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                message = f"{name} must be a whole number of at least 1; got {value!r}"
                raise ConfigError(message)

    @property
    def metric(self) -> Metric:
        """Which cost is limited."""
        return next(m for m in METRICS if getattr(self, m) is not None)

    @property
    def quantity(self) -> Quantity:
        """Which cost is limited, or the time."""
        return "latency" if self.latency is not None else self.metric

    @property
    def amount(self) -> float:
        """The limit as it was given."""
        return float(getattr(self, self.metric))
