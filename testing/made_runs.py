"""Runs made in a second: the files that a training would leave, with numbers that follow a plain rule."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pcshrink as pcs
from pcshrink.measure import profile
from pcshrink.models import create
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.facts import Cut
from pcshrink.train.history import GroupState, HistoryWriter
from pcshrink.train.observe import network_facts
from pcshrink.train.recipe.read import dump_recipe
from pcshrink.train.recipe.schema import Recipe
from testing.training import tiny

PHASES = ("dense", "shrink", "settle")


def made_run(
    folder: Path, *, history: bool = True, finished: bool = True, name: str = "digitsnet", data: str = "digits",
    epochs: int = 4, steps: int = 5, shift: float = 0.0, shape: tuple[int, ...] = (1, 16, 16),
) -> Path:  # fmt: skip
    """Write a run of three phases of equal length that keeps half of every group.

    Channels 0 and 1 of each group go the two mixed ways: 0 is selected early and stays, 1 the other way round.
    """
    folder.mkdir(parents=True)
    lengths = dict.fromkeys(PHASES, epochs)
    recipe = tiny(model={"name": name}, data={"name": data, "batch_size": 64}, epochs=lengths, distill=None)
    (folder / "recipe.yaml").write_text(dump_recipe(recipe))
    model = create(name).eval()
    example = torch.zeros(2, *shape)
    dense = profile(model, example)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(prove=False))
    sizes = {g.name: g.channels for g in shrinker.groups}
    rows = _rows(3 * epochs if finished else 2, epochs, steps, shift, dense.madds)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if history:
        writer = HistoryWriter(folder)
        writer.start(_start_facts(recipe))
        writer.network(network_facts(shrinker.groups, shrinker.refused, dense))
        _record(writer, rows, sizes, steps)
    if finished:
        _finish(folder, model, shrinker, dense, name, shape, shift)
    return folder


def _rows(count: int, epochs: int, steps: int, shift: float, madds: int) -> list[dict[str, Any]]:
    rows = []
    for epoch in range(count):
        share = 1.0 if epoch < epochs else max(1 - 0.6 * (epoch - epochs + 1) / epochs, 0.4)
        row = {
            "epoch": epoch, "epochs": 3 * epochs, "phase": PHASES[epoch // epochs], "step": steps * (epoch + 1),
            "loss": 2.0 / (epoch + 1) + shift, "error": 50.0 / (epoch + 1) + shift, "lr": 0.1, "seconds": 1.0,
        }  # fmt: skip
        if row["phase"] == "shrink":
            row |= {"lambda": 0.1 * epoch, "R": 5.0, "highest_selected": 0.5}
        rows.append(row | ({"madds": round(share * madds), "madds_share": share, "dead": 9} if epoch >= epochs else {}))
    return rows


def _start_facts(recipe: Recipe) -> dict[str, Any]:
    return {
        "command": "pcshrink train <made> --out runs/made", "versions": {"torch": torch.__version__},
        "classes": [f"class {n}" for n in range(10)], "images": {"train": 1437, "eval": 360},
        "recipe": recipe.model_dump(mode="json"),
    }  # fmt: skip


def _record(writer: HistoryWriter, rows: list[dict[str, Any]], sizes: dict[str, int], steps: int) -> None:
    ends = [row["epoch"] for row in rows if row["phase"] == "shrink"]
    for row in rows:
        for step in range(steps):
            writer.step(row["loss"] + 0.1 * step, row["loss"], 0.1 * step, 3.0)
        states = [_state(name, size, row, ends) for name, size in sizes.items()] if row["phase"] != "dense" else []
        writer.epoch(EpochRow.from_dict(row), states)
        if ends and row["epoch"] == ends[-1]:
            facts = {"gated_error": 4.0, "masked_error": 5.0, "compact_error": 5.0, "leak": 0.01}
            writer.cut(row["epoch"], facts, {name: size // 2 for name, size in sizes.items()})


def _state(name: str, size: int, row: dict[str, Any], ends: list[int]) -> GroupState:
    """The upper half goes; of the lower half, channel 0 is selected instead of channel 1 in the early stage."""
    selected = np.arange(size) >= size // 2
    if row["phase"] == "settle":
        kept = np.array([0, *range(2, size // 2 + 1)])
        return GroupState(
            name=name, channels=kept, salience=np.full(len(kept), 0.9), selected=np.zeros(len(kept), bool),
            alive=len(kept),
        )  # fmt: skip
    early = row["epoch"] - ends[0] < len(ends) / 2
    selected[size // 2] = False
    selected[0], selected[1] = early, not early
    through = (row["epoch"] - ends[0] + 1) / len(ends)
    salience = np.where(selected, 1 - through, 0.9)
    return GroupState(
        name=name, channels=np.arange(size), salience=salience, selected=selected, alive=int((salience > 0.001).sum())
    )


def _finish(
    folder: Path, model: torch.nn.Module, shrinker: pcs.Shrinker, dense: Any, name: str, shape: tuple[int, ...],
    shift: float,
) -> None:  # fmt: skip
    plan = shrinker.plan({g.name: torch.arange(g.channels) < g.channels // 2 for g in shrinker.groups})
    small = apply_plan(model, plan)
    remove_gates_(small)
    pcs.save(folder / "model", small, plan, f"pcshrink:{name}", builder_args={"num_classes": 10}, input_shape=shape)
    left = profile(small, torch.zeros(2, *shape))
    costs = [
        {"madds": p.madds, "params": p.params, "mem_access": p.mem_access, "paper_madds": round(1.02 * p.madds)}
        for p in (dense, left)
    ]
    errors = [{"error": e + shift, "images": 360, "error_by_class": [e + shift] * 10} for e in (4.0, 5.0)]
    cut = Cut(gated_error=4.0, masked_error=5.0, compact_error=5.0, loss_jump=0.1, leak=0.01, highest=0.0)
    budget = {"metric": "madds", "convention": "layers", "limit": left.madds + 10.0, "reached": left.madds}
    result = {
        "dense": costs[0] | errors[0] | {"latency_ms": 2.0, "latency_low_ms": 1.9, "latency_high_ms": 2.1},
        "compact": costs[1] | errors[1] | {"latency_ms": 1.0, "latency_low_ms": 0.9, "latency_high_ms": 1.1},
        "cut": asdict(cut), "budget": budget, "seconds": 12.0,
        "widths": {g: len(kept) for g, kept in plan.groups.items()},
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))
