"""Write the record of a run as it goes on."""

from __future__ import annotations

import array
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcshrink.errors import CheckpointError
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.history.blocks import FILE, MAGIC, append, encode, read_blocks

log = logging.getLogger(__name__)
STEP_COLUMNS = ("loss", "task", "penalty", "pushed")


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """A group at the end of an epoch.

    Attributes:
        name: The group.
        channels: The original number of each channel that is still in the network.
        salience: The score of each of these, for the paper's method its running salience; None where there is none.
        selected: Which of these are being pushed down.
        alive: How many of these would stay if the phase ended now.
    """

    name: str
    channels: NDArray[Any]
    salience: NDArray[Any] | None
    selected: NDArray[Any]
    alive: int


class HistoryWriter:
    """Writes the record of one run; never stops it: what cannot be written is given up with one warning.

    Args:
        folder: The run's folder.
        enabled: Off in all processes but the first.
    """

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        self.path, self.enabled = folder / FILE, enabled
        self._steps = array.array("f")
        self._first = 0  # the number of the first step in the buffer

    def start(self, facts: Mapping[str, object]) -> None:
        """A new run; an older record in the folder is replaced."""
        self._first, self._steps = 0, array.array("f")
        if not self.enabled:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._give_up(error)
        self._write(MAGIC + encode({"kind": "start", "facts": dict(facts)}))

    def rewind(self, step: int, epoch: int) -> None:
        """The run goes on from a checkpoint: before this step, in this epoch. What came later is undone."""
        self._first, self._steps = step, array.array("f")
        if not self.enabled:
            return
        try:
            if self.path.exists():
                _, end = read_blocks(self.path)
                if end < self.path.stat().st_size:  # a crash cut the last block short
                    with self.path.open("rb+") as file:
                        file.truncate(end)
            else:
                append(self.path, MAGIC)
        except (OSError, CheckpointError) as error:
            self._give_up(error)
        self._write(encode({"kind": "rewind", "step": step, "epoch": epoch}))

    def network(self, facts: Mapping[str, object]) -> None:
        """What can shrink and what stays, when the gates go on; as ``observe.network_facts`` gives it."""
        self._write(encode({"kind": "network", "facts": dict(facts)}))

    def step(self, loss: float, task: float, penalty: float, pushed: float) -> None:
        """One optimizer step; kept in memory until the next ``epoch`` or ``flush``."""
        if self.enabled:
            self._steps.extend((loss, task, penalty, pushed))

    def epoch(self, row: EpochRow, groups: Sequence[GroupState] = ()) -> None:
        """The end of an epoch, before anything is cut.

        Args:
            row: The figures that also go to ``metrics.jsonl``.
            groups: The groups as they are; none before gates are attached and after they are folded.
        """
        if self.enabled:
            facts = {"kind": "epoch", "row": row.to_dict(), "groups": [g.name for g in groups]}
            self._write(self._take_steps() + encode(facts, _columns(groups) if groups else None))

    def cut(self, epoch: int, facts: Mapping[str, object], widths: Mapping[str, int]) -> None:
        """Channels left the network after an epoch; what was measured then, and the widths left."""
        self._write(encode({"kind": "cut", "epoch": epoch, "facts": dict(facts), "widths": dict(widths)}))

    def flush(self) -> None:
        """Write the steps that are still in memory; call it with every checkpoint."""
        if self._steps:
            self._write(self._take_steps())

    def _take_steps(self) -> bytes:
        rows = np.frombuffer(self._steps, np.float32).reshape(-1, len(STEP_COLUMNS))
        if not len(rows):
            return b""
        block = encode({"kind": "steps", "first": self._first}, {"rows": rows})
        self._first, self._steps = self._first + len(rows), array.array("f")
        return block

    def _write(self, data: bytes) -> None:
        if self.enabled:
            try:
                append(self.path, data)
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.enabled = False
        log.warning("%s is no longer written (%s); the run goes on, its figures will end here", self.path, error)


def _columns(groups: Sequence[GroupState]) -> dict[str, NDArray[Any]]:
    sizes = [len(g.channels) for g in groups]
    largest = max((int(g.channels.max()) for g in groups if len(g.channels)), default=0)
    columns = {
        "width": np.array(sizes, np.int32),
        "alive": np.array([g.alive for g in groups], np.int32),
        "channels": np.concatenate([g.channels for g in groups]).astype(np.uint16 if largest < 1 << 16 else np.uint32),
        "selected": np.concatenate([g.selected for g in groups]).astype(bool),
    }
    if any(g.salience is not None for g in groups):
        parts = [np.full(n, np.nan) if g.salience is None else g.salience for g, n in zip(groups, sizes, strict=True)]
        columns["salience"] = np.concatenate(parts).astype(np.float16)
    return columns
