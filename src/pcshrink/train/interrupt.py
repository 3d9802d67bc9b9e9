"""Ctrl-C and SIGTERM while a training runs: remembered, acted upon at the next step; a later one ends at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pcshrink.common.stop import SIGNALS, is_echo, note_signal
from pcshrink.errors import ShrinkError


class Interrupted(ShrinkError):  # noqa: N818 - it is no error
    """The run was asked to stop and did, with a checkpoint.

    Attributes:
        code: The exit code that says which signal it was.
    """

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.code = 128 + signum


class StopFlag:
    """Which signal has come, if any."""

    def __init__(self) -> None:
        self.signum = 0
        self._before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}

    def _set(self, signum: int, frame: FrameType | None) -> None:
        if not self.signum:
            self.signum = signum
            note_signal()
        elif not is_echo():
            self._give_up(signum, frame)

    def _give_up(self, signum: int, frame: FrameType | None) -> None:
        """A second one: do what would be done without us."""
        before = self._before[signum]
        if callable(before):
            before(signum, frame)
        else:
            signal.signal(signum, before)
            os.kill(os.getpid(), signum)


@contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """Catch both signals for as long as the training runs."""
    flag = StopFlag()
    for each in SIGNALS:
        try:
            flag._before[each] = signal.signal(each, flag._set)
        except ValueError:  # not in the main thread: whoever runs us handles signals
            break
    try:
        yield flag
    finally:
        for signum, handler in flag._before.items():
            signal.signal(signum, handler)
