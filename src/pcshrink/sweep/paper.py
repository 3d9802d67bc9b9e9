"""The paper's ablation tables as data: ResNet-18 on ImageNet, latency on a GTX 1080Ti with batch 32.

Errors are in per cent, multiply-adds in G, memory accesses in M, latencies in ms, all as printed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """One printed row: its setting, named as ours is where we run the same, and its figures."""

    setting: str
    error: float
    madds: float
    latency: float
    mem_access: float | None = None

    @property
    def change(self) -> float:
        """Points of error above the dense network."""
        return self.error - BASELINE.error

    @property
    def madds_share(self) -> float:
        """What is left of the multiply-adds."""
        return self.madds / BASELINE.madds

    @property
    def latency_share(self) -> float:
        """What is left of the time."""
        return self.latency / BASELINE.latency


BASELINE = PaperRow("ResNet-18", 29.6, 1.8, 18.9, 14.5)
_B = (29.8, 1.0, 13.8, 6.9)

PAPER: dict[str, tuple[str, tuple[PaperRow, ...]]] = {
    "k": (
        "Performance comparison with different K",
        (
            PaperRow("K = 0", 28.8, 1.8, 20.3),
            PaperRow("K = 1/4 C", 29.2, 1.4, 16.0),
            PaperRow("K = 1/2 C", 29.8, 1.0, 13.8),
            PaperRow("K = 3/4 C", 30.3, 0.5, 11.4),
        ),
    ),
    "alpha": (
        "Comparison of different moving average rates",
        (
            PaperRow("alpha = 0.5", 30.7, 1.0, 13.8),
            PaperRow("alpha = 0.1", 29.8, 1.0, 13.8),
            PaperRow("alpha = 0.05", 30.0, 1.0, 13.8),
        ),
    ),
    "lambda": (
        "PCS-ResNet18-A, -B and -C of the ImageNet table",
        (
            PaperRow("A, lambda = 4e-6", 29.6, 1.1, 14.6, 7.6),
            PaperRow("B, lambda = 6e-6", *_B),
            PaperRow("C, lambda = 8e-6", 30.1, 0.9, 12.2, 6.5),
        ),
    ),
    "generator": (
        "Comparison with and without the salience generator, nothing shrunk",
        (
            PaperRow("no generator", 29.6, 1.8, 18.9),
            PaperRow("generator, K = 0", 28.8, 1.8, 20.3),
        ),
    ),
    "policy": (
        "Running against input-dependent shrinking",
        (
            PaperRow("pcs, running", *_B),
            PaperRow("pcs-input", 29.8, 0.9, 19.1, 15.1),
        ),
    ),
    "truncation": (
        "Progressive shrinking against truncation",
        (
            PaperRow("pcs", *_B),
            PaperRow("truncation, 30 %", 35.9, 1.0, 19.4, 15.0),
        ),
    ),
}
