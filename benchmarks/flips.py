"""Checkpoints with one flipped bit: every one must be refused, or be read as if nothing had happened.

    python -m benchmarks.flips [--flips 1000] [--seed 0]

A short run leaves its checkpoints; one bit of the newest is flipped at a time. Refused: the reader says that it is
damaged, and takes the checkpoint before it. Harmless: all that is read is as it was. Silent: anything else.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcshrink.errors import CheckpointError
from pcshrink.train.checkpoint import Checkpoints, load_state
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.run import train

RECIPE: dict[str, Any] = {
    "model": {"name": "digitsnet", "args": {"widths": [4, 4, 8]}},
    "data": {"name": "digits", "batch_size": 256},
    "epochs": {"warmup": 1, "shrink": 1},
    "shrink": {"ratio": 0.5},
    "train": {"threads": 1},
    "output": {"latency": False},
}


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal in every bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def outcome(path: Path, expected: dict[str, Any], before: dict[str, Any]) -> str:
    """What a reader makes of a damaged newest checkpoint, alone and with the one before it."""
    told: list[str] = []
    try:
        return "harmless" if same(load_state(path), expected) else "silent"
    except CheckpointError:
        taken = Checkpoints(path.parent).load(told.append)
    return "refused" if told and same(taken, before) else "silent"


def main() -> None:
    """Flip, read, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, counts = random.Random(options.seed), {"refused": 0, "harmless": 0, "silent": 0}
    with tempfile.TemporaryDirectory() as folder:
        train(check_recipe(RECIPE), folder, quiet=True)
        older, newest = Checkpoints(Path(folder) / "checkpoints").written()
        data, expected, before = newest.read_bytes(), load_state(newest), load_state(older)
        for _ in range(options.flips):
            place = chance.randrange(len(data))
            newest.write_bytes(data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :])
            counts[outcome(newest, expected, before)] += 1
    print(f"{options.flips} flips in {len(data):,} bytes: " + ", ".join(f"{n} {name}" for name, n in counts.items()))
    sys.exit(bool(counts["silent"]))


if __name__ == "__main__":
    main()
