"""Several processes as one: the first owns the files and tells the others what is in them; lost ones are noticed."""

from __future__ import annotations

import contextlib
import datetime
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from pcshrink.errors import ShrinkError
from pcshrink.graph.model import first_line

T = TypeVar("T")
_ABOUT_PEERS = re.compile(r"gloo|NCCL|TCPStore|connect|Broken pipe|timed? ?out|clients joined", re.IGNORECASE)


class PeerError(ShrinkError, RuntimeError):
    """Another process of the run is gone, or does not answer."""


class _Waiting:
    """Those who wait while the first process works alone: measuring, saving, exporting."""

    group: Any = None
    seconds = 0.0


def wait_together(minutes: float) -> None:
    """Open a second group of all processes for the times when the first one works alone; all must call it."""
    _Waiting.seconds = 60 * minutes
    _Waiting.group = dist.new_group(backend="gloo", timeout=datetime.timedelta(minutes=minutes))


@contextlib.contextmanager
def _telling_others() -> Iterator[None]:
    """In the first process: tell the others now and then that it still works, and when it is done."""
    done = threading.Event()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the last word in the main thread fails as well, and says so
            while not done.wait(_Waiting.seconds / 4):
                _say_working(still=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
    _say_working(still=False)


def _say_working(*, still: bool) -> bool:
    """From the first process to all: whether it works on."""
    word = torch.tensor([still], dtype=torch.uint8)
    dist.broadcast(word, src=0, group=_Waiting.group)
    return bool(word)


@contextlib.contextmanager
def noticing_lost_peers(world_size: int, minutes: float) -> Iterator[None]:
    """Say in one line what torch says in pages when a process is gone, stopped or cut off.

    Raises:
        PeerError: One of them is.
    """
    try:
        yield
    except RuntimeError as error:
        if world_size == 1 or not tells_of_peers(error):
            raise
        message = (
            f"another process of this run is gone or did not answer for {minutes:g} minutes (train.timeout): "
            f"{first_line(error)[:200]}; start all of them again"
        )
        raise PeerError(message) from error


def tells_of_peers(error: Exception) -> bool:
    """Whether torch means another process, not something in this one."""
    if isinstance(error, ShrinkError):
        return False
    return isinstance(error, dist.DistError) or bool(_ABOUT_PEERS.search(str(error)))


def from_all(value: T) -> list[T]:
    """What every process gives, in the order of their ranks; all must call it, after ``wait_together``."""
    given: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(given, value, group=_Waiting.group)
    return given


def from_first(fabric: Any, work: Callable[[], T]) -> T:
    """Let the first process do something and give all of them what it gave; a mistake is raised in all alike.

    Machines need no common disk this way.
    """
    if fabric.world_size == 1:
        return work()
    given: T | None = None
    problem: ShrinkError | None = None
    if fabric.is_global_zero:
        with _telling_others():
            try:
                given = work()
            except ShrinkError as error:
                problem = error
    else:
        while _say_working(still=False):
            pass
    said = [(given, type(problem), str(problem))]
    dist.broadcast_object_list(said, src=0, group=_Waiting.group)
    given, kind, text = said[0]
    if issubclass(kind, ShrinkError):
        raise kind(text) from problem
    return cast(T, given)
