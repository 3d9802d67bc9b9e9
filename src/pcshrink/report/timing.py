"""Time every layer of a finished run, dense and compact, and keep it beside the run for its report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pcshrink.artifact import load, read
from pcshrink.artifact.builders import build, is_known
from pcshrink.common.files import write_text
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.measure.explain import explain
from pcshrink.measure.latency import compare
from pcshrink.measure.layers import LayerTable
from pcshrink.runtime.registry import DEFAULT_RUNTIME

FILE = "layers.json"


def time_layers(folder: str | Path, runtime: str = DEFAULT_RUNTIME, *, threads: int = 1) -> dict[str, Any]:
    """Measure a finished run's layers and write ``layers.json`` into its folder.

    Args:
        folder: A finished run.
        runtime: Where to measure.
        threads: Threads of the runtime.

    Raises:
        CheckpointError: There is no saved network yet.
        ConfigError: The full-size network cannot be built from what the folder says.
    """
    folder = Path(folder)
    home = folder / "model" if (folder / "model" / "pcshrink.json").is_file() else folder
    if not (home / "pcshrink.json").is_file():
        message = f"the run in {folder} has no saved network yet; its layers can be timed when it has finished"
        raise CheckpointError(message)
    saved = read(home)
    if saved.builder is None or saved.input_shape is None or not is_known(saved.builder):
        message = f"{folder} does not say how its full-size network is made, so its layers cannot be timed"
        raise ConfigError(message)
    dense, small = build(saved.builder, saved.builder_args).eval(), load(home).eval()
    example = torch.randn(1, *saved.input_shape, generator=torch.Generator().manual_seed(0))
    changes = explain(dense, small, example, LayerTable(runtime, threads))
    whole = compare({"dense": dense, "compact": small}, example, runtime, threads=threads, seconds=1.0)
    ratio = whole.ratio("compact", "dense")
    timing = {
        "runtime": runtime,
        "threads": threads,
        "dense_ms": whole.results["dense"].median_ms,
        "compact_ms": whole.results["compact"].median_ms,
        "ratio": {"value": ratio.value, "low": ratio.low, "high": ratio.high},
        "layers": [asdict(change) for change in changes],
    }
    write_text(folder / FILE, json.dumps(timing, indent=1))
    return timing
