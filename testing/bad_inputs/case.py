"""One bad input, and how what became of it is judged."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from pcshrink.cli.main import main
from pcshrink.errors import ShrinkError
from pcshrink.train.callbacks import Callbacks
from testing.bad_inputs.place import Place

MOST_LINES = 6  # the parser of the command line shows the usage as well
LONGEST = 1500


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes:
        area: Where it is given.
        name: What is wrong.
        act: Does it.
    """

    area: str
    name: str
    act: Callable[[Place], object]


@dataclass(frozen=True)
class Outcome:
    """What became of it: ``clear``, ``traceback`` or ``silent``, and what was said."""

    kind: str
    said: str


class RefusedError(Exception):
    """The command line ended with an exit code and these words."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code


def cases(area: str, table: Iterable[tuple[str, Callable[[Place], object]]]) -> list[Case]:
    """A table as cases."""
    return [Case(area, name, act) for name, act in table]


class _BegunError(Exception):
    pass


def _begun(callbacks: Callbacks, loop: object) -> None:
    raise _BegunError


def command(*words: str) -> Callable[[Place], object]:
    """A command line; ``{saved}`` and so on stand for what is in the place."""

    def act(place: Place) -> None:
        told = io.StringIO()
        spoken = [word.format(**place.paths()) for word in words]
        with (
            mock.patch.object(sys, "argv", ["pcshrink", *spoken]),
            mock.patch.object(Callbacks, "before_step", _begun),
            contextlib.redirect_stderr(told),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            try:
                main()
            except _BegunError:
                return  # a training that begins: nothing was noticed
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0
                if code:
                    raise RefusedError(code, told.getvalue()) from None

    return act


def judge(case: Case, place: Place) -> Outcome:
    """Do it, and see what becomes of it."""
    before = Path.cwd()
    os.chdir(place.fresh())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.act(place)
    except RefusedError as refused:
        said = str(refused).strip()
        fine = refused.code in (1, 2) and said and len(said.splitlines()) <= MOST_LINES and "Traceback" not in said
        return Outcome("clear" if fine and len(said) <= LONGEST else "traceback", said)
    except ShrinkError as error:
        said = str(error)
        return Outcome("clear" if said and len(said) <= LONGEST else "traceback", f"{type(error).__name__}: {said}")
    except Exception as error:
        return Outcome("traceback", f"{type(error).__name__}: {error}")
    finally:
        os.chdir(before)
    return Outcome("silent", "")
