"""Ctrl-C and SIGTERM on the command line: one line, 130 or 143, no traceback, nothing half written left behind.

Python would raise wherever it happens to be. Inside an import or a destructor that is printed as a traceback and
forgotten, so outside of a training's loop the process ends in the handler itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from pcshrink.common.scratch import drop_scratch

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ONE_EVENT = 1.0  # seconds; `timeout` sends its signal to the process and then to its group, so it comes twice


def _just_stopped() -> str:
    return "pcshrink: stopped"


class _State:
    words: Callable[[], str] = staticmethod(_just_stopped)
    owner = 0  # the process that listens; what it forks is none of ours
    heard = -ONE_EVENT


def end_on_signals() -> None:
    """From now on both signals end this process, whatever it does."""
    _State.owner = os.getpid()
    for each in SIGNALS:
        signal.signal(each, _on_signal)


def last_words(words: Callable[[], str]) -> None:
    """Choose the line that is said at such an end; an empty one says nothing."""
    _State.words = staticmethod(words)


def note_signal() -> None:
    """A signal came and somebody acts upon it; the same one right after it means nothing new."""
    _State.heard = time.monotonic()


def is_echo() -> bool:
    """Whether a signal that comes now belongs to the one just noted."""
    return time.monotonic() - _State.heard < ONE_EVENT


def _on_signal(signum: int, frame: FrameType | None) -> None:
    if not is_echo():
        _end(signum)


def _end(signum: int) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    if os.getpid() == _State.owner:
        with contextlib.suppress(Exception):  # the stream may be in the middle of a write
            sys.stdout.flush()
        drop_scratch()
        _kill_workers()
        _say_last_words()
    os._exit(128 + signum)


def _kill_workers() -> None:
    if "multiprocessing" in sys.modules:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()


def _say_last_words() -> None:
    with contextlib.suppress(Exception):
        line = _State.words()
        # A progress bar hides the cursor and leaves its line open.
        order = "\x1b[?25h\n" if "rich" in sys.modules and os.isatty(2) else ""
        os.write(2, (order + (f"{line}\n" if line else "")).encode())


@contextlib.contextmanager
def unheard_by_children() -> Iterator[None]:
    """Processes that are started in here never hear the two signals, which a terminal sends to all of a group.

    They are told to end by whoever started them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
