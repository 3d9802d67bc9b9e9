"""How long a model takes, alone or beside others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import nn

from pcshrink.common.tables import text_table
from pcshrink.config import is_number
from pcshrink.errors import ConfigError
from pcshrink.graph.examples import check_runs
from pcshrink.graph.model import tensors, unwrap
from pcshrink.measure.timing import Ratio, interleave, median_interval, paired_ratio
from pcshrink.runtime.registry import RuntimeLike
from pcshrink.runtime.run import check_runtime, ready, use_threads


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The time of one forward pass.

    Attributes:
        median_ms: Median over the rounds.
        low_ms: Lower end of the 99 % interval of that median.
        high_ms: Upper end.
        runtime: Where it ran.
        threads: How many threads it could use.
        batch: Samples in the input.
        rounds: How many times it was measured.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    runtime: str
    threads: int
    batch: int
    rounds: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.median_ms:.3f} ms [{self.low_ms:.3f}, {self.high_ms:.3f}] "
            f"({self.runtime}, batch {self.batch}, {self.threads} threads, {self.rounds} rounds)"
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several models, timed in the same rounds.

    Attributes:
        results: Name -> its latency.
        times: Name -> seconds per call, round by round.
    """

    results: dict[str, Latency]
    times: dict[str, list[float]]

    def ratio(self, name: str, reference: str) -> Ratio:
        """One model's time as a multiple of another's, with what may be claimed about it."""
        for one in (name, reference):
            if one not in self.times:
                message = f"{one!r} was not measured; measured were {', '.join(self.times)}"
                raise ConfigError(message)
        return paired_ratio(self.times[name], self.times[reference])

    def table(self) -> str:
        """One line for each model; ratios are against the first."""
        names = list(self.results)
        rows = []
        for name, timed in self.results.items():
            ratio = "" if name == names[0] else str(self.ratio(name, names[0]))
            rows.append([name, f"{timed.median_ms:.3f}", f"[{timed.low_ms:.3f}, {timed.high_ms:.3f}]", ratio])
        return text_table(rows, "<><", head=["model", "median ms", "99 % interval", f"x {names[0]}"])


def latency(
    model: nn.Module,
    example_input: object,
    runtime: RuntimeLike = "eager",
    *,
    threads: int | None = None,
    seconds: float = 1.0,
) -> Latency:
    """Time a model's forward pass in evaluation mode; the model is left untouched.

    To compare models use ``compare``: only what ran in the same rounds can be compared fairly.

    Args:
        model: Any module.
        example_input: A tensor, or a tuple of arguments; its batch size is what is measured.
        runtime: "eager", "compiled", "onnxruntime" or "openvino", a name that was registered, or a ``Runtime``.
        threads: How many threads to use; None: as many as torch uses now.
        seconds: About how long to measure.

    Raises:
        ConfigError: The runtime is unknown or not installed.

    Example:
        >>> import torch
        >>> time = latency(torch.nn.Linear(4, 4), torch.rand(1, 4), seconds=0.01)
        >>> 0 < time.low_ms <= time.median_ms <= time.high_ms
        True
    """
    return compare({"model": model}, example_input, runtime, threads=threads, seconds=seconds).results["model"]


def compare(
    models: Mapping[str, nn.Module],
    example_input: object,
    runtime: RuntimeLike = "eager",
    *,
    threads: int | None = None,
    seconds: float = 2.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Time several models on the same input, in turns.

    Args:
        models: Name -> model.
        example_input: A tensor, or a tuple of arguments, that all of them take.
        runtime: "eager", "compiled", "onnxruntime" or "openvino", a name that was registered, or a ``Runtime``.
        threads: How many threads to use; None: as many as torch uses now.
        seconds: About how long to measure each.
        clock: What to time with; ``timing.clock_for`` gives the one for a busy machine.

    Raises:
        ConfigError: The runtime is unknown or not installed, or there is no time to measure.
        TraceError: A model does not run on the example input.
    """
    if not models:
        message = "there is no model to time"
        raise ConfigError(message)
    if not is_number(seconds) or seconds <= 0:
        message = f"seconds must be a number above 0, got {seconds!r}"
        raise ConfigError(message)
    place = check_runtime(runtime)
    for model in models.values():
        check_runs(unwrap(model), example_input)
    batch = next((len(t) for t in tensors(example_input) if t.ndim), 1)
    with use_threads(threads) as count:
        calls = {name: ready(model, example_input, place, count) for name, model in models.items()}
        times = interleave(calls, seconds, clock=clock)
    results = {}
    for name, taken in times.items():
        median, low, high = (1e3 * value for value in median_interval(taken))
        results[name] = Latency(
            median_ms=median, low_ms=low, high_ms=high, runtime=place.name,
            threads=count, batch=batch, rounds=len(taken),
        )  # fmt: skip
    return Comparison(results=results, times=times)
