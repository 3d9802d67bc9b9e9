"""Several processes as one: the first owns the files and tells the others what is in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from pcshrink.errors import ShrinkError

T = TypeVar("T")


def from_first(fabric: Any, work: Callable[[], T]) -> T:
    """Let the first process do something and give all of them what it gave; a mistake is raised in all alike.

    Machines need no common disk this way.
    """
    if fabric.world_size == 1:
        return work()
    given: T | None = None
    problem: ShrinkError | None = None
    if fabric.is_global_zero:
        try:
            given = work()
        except ShrinkError as error:
            problem = error
    given, kind, text = fabric.broadcast((given, type(problem), str(problem)))
    if issubclass(kind, ShrinkError):
        raise kind(text) from problem
    return cast(T, given)
