"""A file that only grows: blocks of a JSON header and raw arrays, each with its length and checksum.

A reader takes every whole block from the start and stops at the first that is not whole. So a file cut short by a crash
opens up to its last whole block, and one that is being written can be read at any moment.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcshrink.errors import CheckpointError

FILE = "history.bin"
MAGIC = b"pcshrink history 1\n"
_LENGTHS = struct.Struct("<III")  # bytes of the header, bytes of the arrays, checksum of both
_KINDS = ("|b1", "|u1", "<u2", "<u4", "<i4", "<i8", "<f2", "<f4", "<f8")
LARGEST = 256 << 20  # a block that claims more is damaged

Array = NDArray[Any]


@dataclass(frozen=True)
class Block:
    """One record: plain data, and arrays by name."""

    facts: dict[str, Any]
    arrays: dict[str, Array]


def encode(facts: Mapping[str, object], arrays: Mapping[str, Array] | None = None) -> bytes:
    """A block as bytes."""
    shown, raw = [], []
    for name, array in (arrays or {}).items():
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        if plain.dtype.str not in _KINDS:
            message = f"arrays of type {plain.dtype} are not kept; {name} must be one of {', '.join(_KINDS)}"
            raise ValueError(message)
        shown.append([name, plain.dtype.str, list(plain.shape)])
        raw.append(plain.tobytes())
    header = json.dumps({"facts": dict(facts), "arrays": shown}, separators=(",", ":"), default=str).encode()
    body = b"".join(raw)
    return _LENGTHS.pack(len(header), len(body), zlib.crc32(body, zlib.crc32(header))) + header + body


def append(path: Path, data: bytes) -> None:
    """Add encoded blocks to the end of a file; the system gets them in one call."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
    finally:
        os.close(handle)


def read_blocks(path: Path) -> tuple[list[Block], int]:
    """All whole blocks of a file, and the length of the file up to the end of the last.

    Raises:
        CheckpointError: There is no such file, or it is of another kind.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise CheckpointError(message) from error
    if not data.startswith(MAGIC):
        message = f"{path} is not a history of a run, or was written by another version of pcshrink"
        raise CheckpointError(message)
    blocks, end = [], len(MAGIC)
    for block, after in _decode(data):
        blocks.append(block)
        end = after
    return blocks, end


def _decode(data: bytes) -> Iterator[tuple[Block, int]]:
    place = len(MAGIC)
    while place + _LENGTHS.size <= len(data):
        head, body, checksum = _LENGTHS.unpack_from(data, place)
        start, end = place + _LENGTHS.size, place + _LENGTHS.size + head + body
        if head + body > LARGEST or end > len(data) or zlib.crc32(data[start:end]) != checksum:
            return
        try:
            block = _block(data[start : start + head], data[start + head : end])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        yield block, end
        place = end


def _block(header: bytes, body: bytes) -> Block:
    content = json.loads(header)
    arrays, place = {}, 0
    for name, kind, shape in content["arrays"]:
        if kind not in _KINDS or any(type(n) is not int or n < 0 for n in shape):
            message = f"impossible array {name}"
            raise ValueError(message)
        count = math.prod(shape)
        arrays[str(name)] = np.frombuffer(body, kind, count, place).reshape(shape)
        place += count * np.dtype(kind).itemsize
    return Block(dict(content["facts"]), arrays)
