"""One compact network used by several threads at once: every output must be the one that a single thread gets.

    python -m benchmarks.threads [--threads 4] [--passes 2000]

With kept and with folded gates, as `compact` gives them and as `load` brings them back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import torch
from torch import nn

import pcshrink as pcs
from pcshrink.common.tables import text_table
from pcshrink.models import create
from testing.nets import settle_norms_

INPUTS = 50
KINDS: tuple[Literal["keep", "fold"], ...] = ("keep", "fold")


def networks() -> Iterator[tuple[str, nn.Module]]:
    """A half-size ResNet-20, with gates and without, fresh and from disk."""
    example = torch.randn(2, 3, 32, 32)
    for gates in KINDS:
        torch.manual_seed(0)
        model = create("resnet20")
        settle_norms_(model, example)
        shrinker = pcs.attach_(model, example)
        plan = shrinker.plan({group.name: torch.arange(group.channels) % 2 == 0 for group in shrinker.groups})
        small = pcs.compact(model, plan, example, gates=gates).eval()
        yield f"{gates}, as compact gives it", small
        with tempfile.TemporaryDirectory() as folder:
            pcs.save(folder, small, plan, "pcshrink:resnet20", input_shape=(3, 32, 32))
            yield f"{gates}, loaded", pcs.load(folder)


@torch.no_grad()
def count_wrong(model: nn.Module, threads: int, passes: int) -> int:
    """How many outputs of several threads differ from those of one, in any bit."""
    inputs = [torch.randn(1, 3, 32, 32) for _ in range(INPUTS)]
    expected = [model(image) for image in inputs]

    def is_wrong(number: int) -> bool:
        with torch.no_grad():
            return not torch.equal(model(inputs[number % INPUTS]), expected[number % INPUTS])

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(is_wrong, range(passes)))


def main() -> None:
    """Count for each kind of network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--passes", type=int, default=2000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    wrong = {name: count_wrong(model, options.threads, options.passes) for name, model in networks()}
    print(
        text_table([[name, f"{count} of {options.passes}"] for name, count in wrong.items()], head=["gates", "wrong"])
    )
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
