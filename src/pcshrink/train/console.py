"""What a person sees and what a machine reads: a progress bar or plain lines, and JSON lines."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from pcshrink.common.files import write_text
from pcshrink.common.progress import Progress, show_progress
from pcshrink.train.epoch_row import EpochRow

SECONDS_BETWEEN_LINES = 60.0  # epochs tell most of it


class Console:
    """Progress of one run; silent in all processes but the first.

    Args:
        folder: Where ``metrics.jsonl`` goes.
        quiet: Show nothing.
    """

    def __init__(self, folder: Path, *, quiet: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        self.quiet = quiet
        self._progress: Progress | None = None
        self._standing = ""  # error and size after the last epoch, for the bar

    def close(self) -> None:
        """Put the terminal and the files in order."""
        if self._progress is not None:
            self._progress.close(finished=False)
            self._progress = None

    def start(self, step: int, steps: int) -> None:
        """The run begins, or goes on, at a step."""
        if not self.quiet:
            self._progress = show_progress("", steps, done=step, seconds_between_lines=SECONDS_BETWEEN_LINES)

    def step(self, step: int, text: str) -> None:
        """One step is done."""
        if self._progress is not None:
            self._progress.update(step, text + self._standing)

    def say(self, text: str) -> None:
        """A line for people."""
        if self._progress is not None:
            self._progress.say(text)
        elif not self.quiet:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def rewind(self, epoch: int) -> None:
        """Forget the records of epochs that will be run again."""
        if self.path.is_file():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _epoch_of(line) < epoch]
            write_text(self.path, "".join(line + "\n" for line in kept))

    def record(self, row: EpochRow) -> None:
        """Append one record to the metrics, and show it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row.to_dict()) + "\n")
        self._standing = standing(row)
        self.say(describe(row))


def standing(row: EpochRow) -> str:
    """What a progress bar shows of the last epoch: its error, and the multiply-adds left."""
    error = "" if row.error is None else f", error {row.error:.2f} %"
    return error + ("" if row.madds_share is None else f", madds {100 * row.madds_share:.0f} %")


def describe(row: EpochRow) -> str:
    """One epoch as a line, with whatever the method tells about itself."""
    parts = [f"epoch {row.epoch + 1}/{row.epochs} {row.phase:7}", f"loss {row.loss:.4f}"]
    if row.error is not None:
        parts.append(f"error {row.error:.2f} %")
    parts += map(str, row.figures)
    if row.madds is not None and row.madds_share is not None:
        parts.append(f"madds {row.madds / 1e6:.2f} M ({100 * row.madds_share:.1f} %)")
        parts.append("for the mean input" if row.dead is None else f"dead {row.dead}")
    parts.append(f"lr {row.lr:.4g}  {row.seconds:.1f} s")
    return "  ".join(parts)


def _epoch_of(line: str) -> float:
    try:
        return float(json.loads(line)["epoch"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut short by a crash
