"""Reads the official Python-format CIFAR-10 batches, which are pickles, without unpickling them.

A pickle is a program: it may name any function and have it called. Here the standard library's disassembler lists
its steps, and the labels and pixels are picked out of that list. Nothing is called, imported or even looked up, and a
step or a name that no batch has is refused. That the right bytes were picked is for their hash to say (`stored`).
"""

import pickletools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcshrink.errors import DataError

_PIXELS = 3072
_ARRAYS = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_NAMES = {*_ARRAYS, "numpy ndarray", "numpy dtype", "_codecs encode"}
_NUMBERS = {"BININT", "BININT1", "BININT2"}
_TEXTS = {"SHORT_BINSTRING", "BINSTRING", "BINUNICODE"}  # of Python 2, or bytes that Python 3 spells as text
_STEPS = {
    *_NUMBERS, *_TEXTS, "NONE", "NEWTRUE", "NEWFALSE",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "MARK",
    "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS",
    "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    "GLOBAL", "REDUCE", "BUILD", "PROTO", "STOP",
}  # fmt: skip


def read_pickled_batch(content: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return pixels (N, 3072) and labels (N,) of one official batch.

    Args:
        content: The whole file.
        name: What to call it in errors.

    Raises:
        DataError: It is not such a batch, or it tries to do anything else than hold one.
    """
    try:
        labels, pixels, by_column = _scan(content)
    except ValueError as error:
        msg = f"{name} is not a CIFAR-10 batch in the Python format: {error}; delete it and download it again"
        raise DataError(msg) from error
    if not pixels or len(pixels) != len(labels) * _PIXELS or not all(0 <= label < 256 for label in labels):
        msg = f"{name} does not hold CIFAR-10 images and labels; delete it and download it again"
        raise DataError(msg)
    flat = np.frombuffer(pixels, dtype=np.uint8)
    return flat.reshape((-1, _PIXELS), order="F" if by_column else "C"), np.array(labels, dtype=np.uint8)


def _scan(content: bytes) -> tuple[list[int], bytes, bool]:
    """Return the labels, the bytes of the uint8 array called data, and whether these go column by column."""
    labels: list[int] = []
    pixels, by_column = b"", False
    entry, said, flag = "", set[object](), False  # the key, what was said since then, the last True or False
    for step, value in _steps(content):
        if step in ("NEWTRUE", "NEWFALSE"):
            flag = step == "NEWTRUE"
        elif step in _NUMBERS and entry == "labels":
            labels.append(value)
        elif step in _TEXTS and entry == "data" and len(value) >= _PIXELS:
            if "u1" in said and said & _ARRAYS:
                pixels, by_column = value.encode("latin1"), flag
            entry = ""
        elif step in _TEXTS and entry != "data" and value != "latin1":
            entry, said = value, set()
        elif entry == "data":
            said.add(value)
    return labels, pixels, by_column


def _steps(content: bytes) -> Iterator[tuple[str, Any]]:
    for opcode, value, _ in pickletools.genops(content):
        if opcode.name not in _STEPS or (opcode.name == "GLOBAL" and value not in _NAMES):
            what = f"the name {value}" if opcode.name == "GLOBAL" else f"the step {opcode.name}"
            msg = f"it has {what}, which no CIFAR-10 batch has"
            raise ValueError(msg)
        yield opcode.name, value
