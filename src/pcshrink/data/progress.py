"""A progress bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def track(
    label: str, total: int | None, *, enabled: bool = True, in_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show how far a piece of work has come, on stderr.

    Args:
        label: What is being done.
        total: Amount of work, or `None` if nobody knows.
        enabled: False shows nothing.
        in_bytes: The amounts are bytes.

    Yields:
        A function to call with the amount of work just done.
    """
    if not enabled:
        yield lambda amount: None
    elif sys.stderr.isatty():
        amounts = DownloadColumn() if in_bytes else MofNCompleteColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amounts, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total)
            yield lambda amount: bar.advance(task, amount)
    else:
        lines = _Lines(label, total, in_bytes)
        yield lines.advance
        lines.write("done")


class _Lines:
    def __init__(self, label: str, total: int | None, in_bytes: bool) -> None:
        self._label, self._total, self._in_bytes = label, total, in_bytes
        self._done = 0
        self._last = time.monotonic()

    def advance(self, amount: int) -> None:
        self._done += amount
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self.write(f"{self._amount(self._done)} of {self._amount(self._total)}")

    def write(self, text: str) -> None:
        sys.stderr.write(f"{self._label}: {text}\n")

    def _amount(self, amount: int | None) -> str:
        if amount is None:
            return "an unknown total"
        return f"{amount / 1e6:.1f} MB" if self._in_bytes else str(amount)
