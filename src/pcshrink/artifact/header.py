"""What a safetensors file says about its tensors, without reading any of them."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcshrink.errors import CheckpointError

LARGEST_HEADER = 100_000_000  # the format's own limit
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def read_header(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file by name, with its shape and type and without values (on the meta device).

    Raises:
        CheckpointError: It is no safetensors file, or its header does not describe what follows.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(LARGEST_HEADER, size):
                message = f"a header of {length} bytes"
                raise ValueError(message)
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        return {name: _described(name, entry, size - 8 - length) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        message = f"{path} is not a valid safetensors file: {type(error).__name__}: {str(error)[:200]}"
        raise CheckpointError(message) from error


def _described(name: str, entry: dict[str, Any], available: int) -> Tensor:
    kind, shape, (begin, end) = TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if any(type(n) is not int or n < 0 for n in (*shape, begin, end)):
        message = f"absurd sizes of {name!r}"
        raise ValueError(message)
    if end - begin != math.prod(shape) * kind.itemsize or end > available:
        message = f"{name!r} does not have the {end - begin} bytes that it should have"
        raise ValueError(message)
    return torch.empty(shape, dtype=kind, device="meta")
