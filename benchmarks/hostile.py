"""Records of saved networks that somebody changed who can compute hashes: refused by `load`, or harmless.

    python -m benchmarks.hostile [--tries 500] [--seed 0]

One entry of `pcshrink.json` is replaced, moved by one or removed at a time, and its hash is made right again. Typed:
`load` raises an error of pcshrink. Runs: the network is loaded and takes an input. Late: it is loaded and fails then.
Raw: `load` raises anything else.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pcshrink as pcs
from pcshrink.artifact.record import HEAD
from pcshrink.artifact.store import RECORD, sha256
from pcshrink.errors import ShrinkError
from pcshrink.models import create

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 7, 10**6, 10**15, 1.5, 1e300, "", "x", "0-3", [], [1], {}, {"a": 1},
)  # fmt: skip
BUILDER, ARGUMENTS, SHAPE = "pcshrink:digitsnet", {"widths": [8, 8, 16]}, (1, 16, 16)


def fresh() -> nn.Module:
    """A network with residual sums, so that groups have several members."""
    torch.manual_seed(0)
    return create(BUILDER, **ARGUMENTS)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in nested data."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def change(content: Any, path: tuple[Any, ...], chance: random.Random) -> None:
    """Replace, move by one or remove one entry."""
    owner = content
    for key in path[:-1]:
        owner = owner[key]
    old, way = owner[path[-1]], chance.random()
    if way < 0.15:
        del owner[path[-1]]
    elif way < 0.5 and type(old) in (int, float):
        owner[path[-1]] = old + chance.choice([-1, 1])
    else:
        owner[path[-1]] = chance.choice(VALUES)


def outcome(folder: Path) -> str:
    """What becomes of a changed record."""
    try:
        made = pcs.load(folder)
    except ShrinkError:
        return "typed"
    except Exception as error:
        print(f"raw {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return "raw"
    try:
        made(torch.randn(2, *SHAPE))
    except Exception as error:
        print(f"late {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return "late"
    return "runs"


def main() -> None:
    """Change, load, run, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance, counts = random.Random(options.seed), {"typed": 0, "runs": 0, "late": 0, "raw": 0}
    with tempfile.TemporaryDirectory() as place:
        folder, model, example = Path(place), fresh(), torch.randn(2, *SHAPE)
        shrinker = pcs.attach_(model, example)
        plan = shrinker.plan({group.name: torch.arange(group.channels) % 2 == 0 for group in shrinker.groups})
        small = pcs.compact(model, plan, example)
        pcs.save(folder, small, plan, BUILDER, builder_args=ARGUMENTS, input_shape=SHAPE)
        text = (folder / RECORD).read_text()
        everywhere = [path for path in places(json.loads(text)) if path != ("sha256",)]
        for _ in range(options.tries):
            content = json.loads(text)
            content.pop("sha256")
            change(content, chance.choice(everywhere), chance)
            body = b'",' + json.dumps(content, indent=1).encode()[1:] + b"\n"
            (folder / RECORD).write_bytes(HEAD + sha256(body).encode() + body)
            counts[outcome(folder)] += 1
    print(f"{options.tries} changed records: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    sys.exit(bool(counts["late"] or counts["raw"]))


if __name__ == "__main__":
    main()
