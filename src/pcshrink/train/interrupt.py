"""Ctrl-C and SIGTERM: remembered, acted upon at the next step; a second one ends the process at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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

    def _set(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        signal.signal(signum, signal.SIG_DFL)  # the next one is final


@contextmanager
def stop_flag() -> Iterator[StopFlag]:
    """Catch both signals for as long as the training runs."""
    flag = StopFlag()
    before = {}
    for signum in (signal.SIGINT, signal.SIGTERM):
        try:
            before[signum] = signal.signal(signum, flag._set)
        except ValueError:  # not in the main thread: whoever runs us handles signals
            break
    try:
        yield flag
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
