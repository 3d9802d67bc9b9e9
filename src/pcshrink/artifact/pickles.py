"""Look at what ``torch.save`` wrote before torch reads it: how far it unpacks, and how deep it nests."""

from __future__ import annotations

import contextlib
import pickletools
import zipfile
from pathlib import Path
from typing import IO, Any

DEEPEST = 100  # a tuple of tuples of ... can be hashed only by as many calls inside each other
LEGACY_PICKLES = 5  # how many a file from before torch 1.6 begins with
_INTO = {"SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS", "BUILD"}


def check_pickle(path: Path) -> None:
    """Refuse a file that would grow on reading.

    Raises:
        ValueError: It would; or it is no file of torch.
    """
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            for _ in range(LEGACY_PICKLES):
                _check_depth(file)
        return
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        unpacked, size = sum(part.file_size for part in parts), path.stat().st_size
        if unpacked > size or any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            message = f"it would unpack from {size} to {unpacked} bytes, and torch packs nothing"
            raise ValueError(message)
        for part in parts:
            if part.filename.endswith("data.pkl"):
                with archive.open(part) as file:
                    _check_depth(file)


def _check_depth(file: IO[bytes]) -> None:
    """Follow the steps of a pickle with numbers in place of objects: how deep each one is."""
    stack: list[int | None] = []  # None is a mark
    memo: dict[Any, int] = {}
    for step, value, _ in pickletools.genops(file):
        if step.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if step.name == "MEMOIZE" else value] = stack[-1] or 0
        elif step.name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo.get(value, 0))
        elif step.name == "MARK":
            stack.append(None)
        elif step.name == "DUP":
            stack.append(stack[-1])
        else:
            _do(step, stack)
        if stack and (stack[-1] or 0) > DEEPEST:
            message = f"it nests more than {DEEPEST} levels deep"
            raise ValueError(message)


def _do(step: pickletools.OpcodeInfo, stack: list[int | None]) -> None:
    taken: list[int] = []
    if pickletools.markobject in step.stack_before:
        while stack and stack[-1] is not None:
            taken.append(stack.pop() or 0)
        with contextlib.suppress(IndexError):
            stack.pop()
        owners = step.stack_before.index(pickletools.markobject)
    else:
        owners = len(step.stack_before)
    below = [stack.pop() or 0 for _ in range(min(owners, len(stack)))][::-1]
    if step.name in _INTO and below:
        depth = max(below[0], 1 + max([*taken, *below[1:]], default=0))
    else:
        depth = 1 + max([*taken, *below]) if taken or below else 0
    stack += [depth] * len(step.stack_after)
