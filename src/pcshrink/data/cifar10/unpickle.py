"""Reads the official Python-format CIFAR-10 batches, which are pickles, without unpickling them.

A pickle is a program: it may name any function and have it called. Here the standard library's disassembler
lists its steps, and the few that build numbers, strings, lists, tuples and dictionaries are followed on a
stack of our own. A call is noted down, never made; only the names that numpy arrays need may be mentioned.
"""

import pickletools

import numpy as np
from numpy.typing import NDArray

from pcshrink.errors import DataError

_PIXELS = 3072
_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_DTYPE, _ENCODE = "numpy dtype", "_codecs encode"
_NAMES = (*_RECONSTRUCT, _DTYPE, _ENCODE, "numpy ndarray")
_LITERALS = ("BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ACTIONS = (
    "MARK",
    "TUPLE",
    "EMPTY_LIST",
    "EMPTY_DICT",
    "APPEND",
    "APPENDS",
    "SETITEM",
    "SETITEMS",
    "REDUCE",
    "BUILD",
)
_MARK = object()


class _Call:
    """A call that the pickle asks for: kept as data."""

    def __init__(self, name: object, args: object) -> None:
        self.name, self.args = name, args
        self.state: object = None


class _Steps:
    """Follows the steps of a pickle."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.memo: dict[object, object] = {}

    def follow(self, step: str, value: object) -> None:
        if step in _LITERALS:
            self.stack.append(value)
        elif step in _CONSTANTS:
            self.stack.append(_CONSTANTS[step])
        elif step in _TUPLES:
            self.stack[-_TUPLES[step] :] = [tuple(self.stack[-_TUPLES[step] :])]
        elif step == "GLOBAL" and value in _NAMES:
            self.stack.append(value)
        elif step in ("BINPUT", "LONG_BINPUT"):
            self.memo[value] = self.stack[-1]
        elif step in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[value])
        elif step in _ACTIONS:
            getattr(self, f"_{step.lower()}")()
        elif step not in ("PROTO", "STOP"):
            what = f"the name {value}" if step == "GLOBAL" else f"the step {step}"
            msg = f"it has {what}, which no CIFAR-10 batch has"
            raise ValueError(msg)

    def _mark(self) -> None:
        self.stack.append(_MARK)

    def _since_mark(self) -> list[object]:
        place = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def _tuple(self) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _empty_list(self) -> None:
        self.stack.append([])

    def _empty_dict(self) -> None:
        self.stack.append({})

    def _append(self) -> None:
        self._extend([self.stack.pop()])

    def _appends(self) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            msg = "it adds an item to something else than a list"
            raise TypeError(msg)
        target.extend(items)

    def _setitem(self) -> None:
        self._update([self.stack.pop(-2), self.stack.pop()])

    def _setitems(self) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            msg = "it adds an entry to something else than a dictionary"
            raise TypeError(msg)
        target.update(zip(items[::2], items[1::2], strict=True))

    def _reduce(self) -> None:
        args, name = self.stack.pop(), self.stack.pop()
        self.stack.append(_Call(name, args))

    def _build(self) -> None:
        state, call = self.stack.pop(), self.stack[-1]
        if not isinstance(call, _Call):
            msg = "it gives a state to something else than an array"
            raise TypeError(msg)
        call.state = state


def read_pickled_batch(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels (N, 3072) and labels (N,) of one official batch.

    Args:
        content: The whole file.
        name: What to call it in errors.

    Raises:
        DataError: It is not such a batch, or it tries to do anything else than hold one.
    """
    steps = _Steps()
    try:
        for opcode, value, _ in pickletools.genops(content):
            steps.follow(opcode.name, value)
        (batch,) = steps.stack
        entries = {_text(key): entry for key, entry in batch.items()} if isinstance(batch, dict) else {}
        pixels = _pixels(entries.get("data"))
    except (ValueError, TypeError, LookupError) as error:
        msg = f"{name} is not a CIFAR-10 batch in the Python format: {error}; delete it and download it again"
        raise DataError(msg) from error
    labels = entries.get("labels")
    if (
        pixels is None
        or not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(type(label) is int and 0 <= label < 256 for label in labels)
    ):
        msg = f"{name} does not hold CIFAR-10 images and labels; delete it and download it again"
        raise DataError(msg)
    return pixels, np.array(labels, dtype=np.uint8)


def _text(value: object) -> str | None:
    """Return text with one character for each byte: a Python 2 string, or Python 3 bytes as protocol 2 writes them."""
    if isinstance(value, _Call) and value.name == _ENCODE and isinstance(value.args, tuple) and value.args:
        value = value.args[0]
    return value if isinstance(value, str) else None


def _pixels(array: object) -> NDArray[np.uint8] | None:
    if not isinstance(array, _Call) or array.name not in _RECONSTRUCT:
        return None
    if not isinstance(array.state, tuple) or len(array.state) != 5:
        return None
    _, shape, dtype, fortran, stored = array.state
    text = _text(stored)
    if text is None or not isinstance(dtype, _Call) or dtype.name != _DTYPE:
        return None
    kind = dtype.args[0] if isinstance(dtype.args, tuple) and dtype.args else None
    if kind != "u1" or shape != (len(text) // _PIXELS, _PIXELS) or len(text) % _PIXELS:
        return None
    content = np.frombuffer(text.encode("latin1"), dtype=np.uint8)
    return content.reshape(shape, order="F" if fortran else "C")
