"""Where a deployed network spends its time: onnxruntime's own profile, by kind of operation."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import nn

from benchmarks.performance.rows import Row
from pcshrink.common.scratch import scratch_folder
from pcshrink.graph.exporters import FOR_MEASURING, write_onnx
from pcshrink.runtime.onnx_layout import keep_layout

Times = dict[str, float]  # kind of operation -> milliseconds
RUNS = 60
KINDS = {
    "Mul": "products with saliences",
    "Upsample": "spreading saliences",
    "Resize": "spreading saliences",
    "AveragePool": "pooling for gates",
    "ReorderInput": "changes of layout",
    "ReorderOutput": "changes of layout",
    "Clip": "ReLU6 by itself",
}
REST = "everything else"


def times_of(model: nn.Module, example: torch.Tensor) -> Times:
    """What each kind of operation takes in one call, the sum over operations of their medians over many calls."""
    with scratch_folder() as folder:
        file = folder / "model.onnx"
        write_onnx(model, example, file, exporters=FOR_MEASURING, use=keep_layout)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: example.numpy()}
        for _ in range(RUNS):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
    calls: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
            calls[event["name"], _kind(event["args"])].append(event["dur"] / 1e3)
    spent: Times = defaultdict(float)
    for (_, kind), taken in calls.items():
        spent[kind] += statistics.median(taken)
    return spent


def _kind(operation: dict[str, Any]) -> str:
    if operation["op_name"] not in ("Conv", "FusedConv"):
        return KINDS.get(operation["op_name"], REST)
    (image,), (weight,) = (shape.values() for shape in operation["input_type_shape"][:2])
    if weight[1] == 1 and weight[2:] == [1, 1]:
        return "copies for ReLU6"
    if weight[1] == 1:
        return "depthwise convolutions"
    return "generators" if image[2:] == [1, 1] else "other convolutions"


def measure_operations(title: str, networks: dict[str, nn.Module], example: torch.Tensor) -> Iterator[Row]:
    """What kept gates add, in shares of the plain network; and what is left of each kind of the dense network."""
    dense, folded, plain, kept = (
        times_of(networks[name], example)
        for name in ("dense", "aligned, folded", "plain, same widths", "generators kept")
    )
    whole, all_plain = sum(dense.values()), sum(plain.values())
    for kind, taken in sorted(dense.items(), key=lambda pair: -pair[1]):
        yield Row("deployment", f"{kind} / all operations, dense, {title}, onnxruntime", None, taken / whole)
        yield Row("deployment", f"{kind}: folded / dense, {title}, onnxruntime", None, folded[kind] / taken)
    for kind in sorted(kept, key=lambda kind: plain[kind] - kept[kind]):
        work = f"{kind}: what generators add / plain network, {title}, onnxruntime"
        yield Row("deployment", work, None, (kept[kind] - plain[kind]) / all_plain)
