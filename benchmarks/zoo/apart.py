"""Run something in a process of its own, so that one network can neither hold all up nor end the whole run."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

Result = TypeVar("Result")

WAITING = 200  # a busy machine gives a process at least this part of its time


class Ended(Exception):  # noqa: N818 - an outcome, not an error of the library's
    """A process ended without an answer."""


def apart(work: Callable[[], Result], seconds: int) -> Result:
    """What ``work`` returns, from a copy of this process that may use so many seconds of the processor.

    Raises:
        Ended: It took too long, or the process died.
    """
    receiving, sending = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(work, seconds, sending))
    process.start()
    sending.close()
    try:
        if not receiving.poll(seconds * WAITING):
            raise Ended(f"no answer after {seconds * WAITING} s")
        result: Result = receiving.recv()
    except EOFError:
        process.join()
        slow = process.exitcode == -signal.SIGXCPU
        raise Ended(f"no answer after {seconds} s" if slow else f"process ended: {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    return result


def _send(work: Callable[[], Result], seconds: int, sending: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    sending.send(work())
