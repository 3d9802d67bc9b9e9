"""Read the record of a run as typed arrays, also while it is being written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcshrink.errors import CheckpointError
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.history.blocks import FILE, Block, read_blocks
from pcshrink.train.history.write import STEP_COLUMNS

EPOCH_COLUMNS = ("error", "loss", "val_loss", "lr", "madds", "madds_share", "dead", "seconds")

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Halves = NDArray[np.float16]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Steps:
    """Every optimizer step: its number, the whole loss, the task's part, the penalty's, and that without its weight."""

    step: Ints
    loss: Floats
    task: Floats
    penalty: Floats
    pushed: Floats


@dataclass(frozen=True)
class Epochs:
    """Every epoch's figures; NaN where one was not measured.

    Those that the method tells about itself are in ``figures``, by the keys that ``metrics.jsonl`` has.
    """

    epoch: Ints
    step: Ints
    phase: tuple[str, ...]
    error: Doubles
    loss: Doubles
    val_loss: Doubles
    lr: Doubles
    madds: Doubles
    madds_share: Doubles
    dead: Doubles
    seconds: Doubles
    figures: dict[str, Doubles]


@dataclass(frozen=True)
class Cut:
    """Channels left the network after an epoch."""

    epoch: int
    facts: dict[str, Any]
    widths: dict[str, int]


@dataclass(frozen=True)
class Trace:
    """One group over all epochs, by original channel numbers; a channel that was cut is 0 and selected from then on.

    Attributes:
        width: Channels in the network (E,); -1 before the gates were attached.
        alive: Channels that would stay if the phase ended then (E,); -1 before the gates were attached.
        salience: Score, for the paper's method the running salience (E, C); NaN for epochs without gates.
        selected: Whether a channel is pushed down or gone (E, C).
    """

    width: Ints
    alive: Ints
    salience: Halves
    selected: Flags


@dataclass(frozen=True)
class History:
    """The record of a run.

    Attributes:
        facts: What was known when it started.
        network: What can shrink and what stays; empty before gates are attached.
        steps: Every step.
        epochs: Every epoch.
        groups: Every group over the epochs.
        cuts: When channels left.
    """

    facts: dict[str, Any]
    network: dict[str, Any]
    steps: Steps
    epochs: Epochs
    groups: dict[str, Trace]
    cuts: tuple[Cut, ...] = field(default=())

    @staticmethod
    def exists(folder: str | Path) -> bool:
        """Whether a run's folder has a record."""
        return (Path(folder) / FILE).is_file()

    @classmethod
    def open(cls, folder: str | Path) -> History:
        """Read the record in a run's folder, up to its last whole block.

        Raises:
            CheckpointError: There is none, or it is no such file.
        """
        path = Path(folder) / FILE
        blocks, _ = read_blocks(path)
        try:
            return _assemble(blocks)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            message = f"{path} is damaged: {type(error).__name__}: {str(error)[:200]}"
            raise CheckpointError(message) from error


def _assemble(blocks: Iterable[Block]) -> History:
    facts: dict[str, Any] = {}
    network: dict[str, Any] = {}
    steps: list[tuple[int, Floats]] = []
    epochs: list[Block] = []
    cuts: list[Cut] = []
    for block in blocks:
        kind, told = block.facts["kind"], block.facts
        if kind == "start":
            facts = told["facts"]
        elif kind == "network":
            network = told["facts"]
        elif kind == "steps":
            steps.append((int(told["first"]), block.arrays["rows"]))
        elif kind == "epoch":
            epochs.append(block)
        elif kind == "cut":
            cuts.append(Cut(int(told["epoch"]), told["facts"], told["widths"]))
        elif kind == "rewind":
            steps = [(first, rows[: told["step"] - first]) for first, rows in steps if first < told["step"]]
            epochs = [e for e in epochs if e.facts["row"]["epoch"] < told["epoch"]]
            cuts = [c for c in cuts if c.epoch < told["epoch"]]
    return History(facts, network, _steps(steps), _epochs(epochs), _traces(network, epochs, cuts), tuple(cuts))


def _steps(parts: list[tuple[int, Floats]]) -> Steps:
    numbers = [np.arange(first, first + len(rows)) for first, rows in parts]
    rows = np.concatenate([rows for _, rows in parts]) if parts else np.empty((0, len(STEP_COLUMNS)), np.float32)
    return Steps(
        np.concatenate(numbers) if parts else np.empty(0, np.int64), *(np.ascontiguousarray(c) for c in rows.T)
    )


def _epochs(blocks: list[Block]) -> Epochs:
    rows = [EpochRow.from_dict(block.facts["row"]) for block in blocks]
    told = [{figure.key: figure.value for figure in row.figures} for row in rows]
    keys = dict.fromkeys(key for each in told for key in each)
    return Epochs(
        epoch=np.array([row.epoch for row in rows], np.int64),
        step=np.array([-1 if row.step is None else row.step for row in rows], np.int64),
        phase=tuple(row.phase for row in rows),
        figures={key: _column(each.get(key) for each in told) for key in keys},
        **{name: _column(getattr(row, name) for row in rows) for name in EPOCH_COLUMNS},
    )


def _column(values: Iterable[float | None]) -> Doubles:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _traces(network: dict[str, Any], blocks: list[Block], cuts: list[Cut]) -> dict[str, Trace]:
    """Every group over all epochs; widths stay as they were once the gates are folded."""
    sizes = {str(g["name"]): int(g["channels"]) for g in network.get("groups", [])}
    count = len(blocks)
    traces = {
        name: Trace(
            np.full(count, -1), np.full(count, -1), np.full((count, size), np.nan, np.float16),
            np.zeros((count, size), bool),
        )
        for name, size in sizes.items()
    }  # fmt: skip
    for place, block in enumerate(blocks):
        _fill(traces, place, block)
        last = max((c for c in cuts if c.epoch < block.facts["row"]["epoch"]), key=lambda c: c.epoch, default=None)
        for name, width in last.widths.items() if last else ():
            if name in traces:
                traces[name].width[place] = min(traces[name].width[place], width)
                traces[name].alive[place] = min(traces[name].alive[place], width)
    return traces


def _fill(traces: dict[str, Trace], place: int, block: Block) -> None:
    present: dict[str, slice] = {}
    ends = np.cumsum(block.arrays["width"]) if block.arrays else np.empty(0, np.int64)
    for name, end, width in zip(block.facts["groups"], ends, block.arrays.get("width", ends), strict=True):
        present[name] = slice(int(end - width), int(end))
    for name, trace in traces.items():
        if name in present:
            part, index = present[name], block.facts["groups"].index(name)
            channels = block.arrays["channels"][part]
            trace.width[place], trace.alive[place] = len(channels), block.arrays["alive"][index]
            trace.selected[place] = True
            trace.selected[place, channels] = block.arrays["selected"][part]
            if "salience" in block.arrays:
                trace.salience[place] = 0
                trace.salience[place, channels] = block.arrays["salience"][part]
        elif place:
            trace.width[place], trace.alive[place] = trace.width[place - 1], trace.alive[place - 1]
            trace.selected[place] = trace.selected[place - 1]
