"""How far a piece of work has come, on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 10.0


class Progress(Protocol):
    """One piece of work that is being done."""

    def update(self, done: int, label: str | None = None) -> None:
        """So much is done by now; perhaps it is called otherwise from now on."""

    def say(self, text: str) -> None:
        """A line for people that stays, above the bar if there is one."""

    def close(self, *, finished: bool = True) -> None:
        """Put the terminal in order; where there is no bar, say so if the work is done."""


def show_progress(
    label: str, total: int | None, *, done: int = 0, in_bytes: bool = False, seconds_between_lines: float | None = None
) -> Progress:
    """Begin to show a piece of work; whoever does so must close it.

    Args:
        label: What is being done.
        total: Amount of work, or None if nobody knows.
        done: How much of it was done before.
        in_bytes: The amounts are bytes.
        seconds_between_lines: At least so long between two lines where there is no terminal; 10 by default.
    """
    if sys.stderr.isatty():
        return _Bar(label, total, done, in_bytes)
    seconds = SECONDS_BETWEEN_LINES if seconds_between_lines is None else seconds_between_lines
    return _Lines(label, total, done, in_bytes, seconds)


@contextmanager
def track(
    label: str, total: int | None, *, enabled: bool = True, in_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a piece of work while it is done.

    Args:
        label: What is being done.
        total: Amount of work, or None if nobody knows.
        enabled: False shows nothing.
        in_bytes: The amounts are bytes.

    Yields:
        A function to call with the amount of work just done.
    """
    if not enabled:
        yield lambda amount: None
        return
    done, finished = 0, False
    progress = show_progress(label, total, in_bytes=in_bytes)

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        progress.update(done)

    try:
        yield advance
        finished = True
    finally:
        progress.close(finished=finished)


class _Bar:
    def __init__(self, label: str, total: int | None, done: int, in_bytes: bool) -> None:
        # Rich is heavy, and most processes never draw a bar.
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        amounts = DownloadColumn() if in_bytes else MofNCompleteColumn()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), amounts, TimeRemainingColumn())
        self._bar = RichProgress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(label, total=total, completed=done)
        self._bar.start()

    def update(self, done: int, label: str | None = None) -> None:
        self._bar.update(self._task, completed=done, description=label)

    def say(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False)

    def close(self, *, finished: bool = True) -> None:
        self._bar.stop()


class _Lines:
    def __init__(self, label: str, total: int | None, done: int, in_bytes: bool, seconds: float) -> None:
        self._label, self._total, self._in_bytes, self._seconds = label, total, in_bytes, seconds
        self._began, self._start = time.monotonic(), done
        self._last = self._began

    def update(self, done: int, label: str | None = None) -> None:
        self._label = label or self._label
        if time.monotonic() - self._last >= self._seconds:
            self.say(f"{self._label}: {self._amount(done)} of {self._amount(self._total)}{self._left(done)}")

    def say(self, text: str) -> None:
        self._last = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def close(self, *, finished: bool = True) -> None:
        if finished:
            self.say(f"{self._label}: done")

    def _amount(self, amount: int | None) -> str:
        if amount is None:
            return "an unknown total"
        return f"{amount / 1e6:.1f} MB" if self._in_bytes else f"{amount:,}"

    def _left(self, done: int) -> str:
        """The time left, if this goes on at the pace of this process."""
        taken = time.monotonic() - self._began
        if self._total is None or done <= self._start or done >= self._total:
            return ""
        seconds = taken * (self._total - done) / (done - self._start)
        return f", about {_duration(seconds)} left"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
