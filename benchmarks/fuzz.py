"""Prove the cut on random networks: equal outputs or a typed refusal, never a crash, a hang or a wrong model.

    python -m benchmarks.fuzz [--count 2000] [--seed 0] [--only NUMBER]

Every network is decided by the seed and its number alone; ``--only`` runs one of them and prints it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
from collections import Counter
from typing import Any

import torch

from testing.random_nets import Outcome, RandomNet, build, check

PATIENCE_S = 60


class Hang(Exception):  # noqa: N818 - not an error of the library's
    """A network took far too long."""


def _too_long(*_: Any) -> None:
    raise Hang(f"no answer after {PATIENCE_S} s")


def network(seed: int, number: int) -> RandomNet:
    """The network of this number."""
    torch.manual_seed(number)
    return build(random.Random(f"{seed}/{number}").randrange)


def attempt(net: RandomNet, number: int) -> Outcome:
    """The outcome of one network; whatever is raised is a failure."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(PATIENCE_S)
    try:
        return check(net, number)
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-3:])
        return Outcome("failed", f"{type(error).__name__}: {error}\n{where}")
    finally:
        signal.alarm(0)


def main() -> int:
    """Run them all; 1 if any failed."""
    parser = argparse.ArgumentParser(description="Prove the cut on random networks.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run and print the network of this number")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seen: Counter[str] = Counter()
    groups, start = 0, time.perf_counter()
    for number in range(options.count) if options.only is None else [options.only]:
        net = network(options.seed, number)
        outcome = attempt(net, number)
        seen[outcome.kind] += 1
        groups += outcome.groups
        if outcome.kind == "failed" or options.only is not None:
            print(f"\n{outcome.kind}: {outcome.detail}\n{net.script}")
            print(f"again: python -m benchmarks.fuzz --seed {options.seed} --only {number}")
        elif sys.stderr.isatty() or number % 100 == 99:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{number + 1}/{options.count} {dict(seen)}", end=end, file=sys.stderr, flush=True)
    print(
        f"\n{seen.total()} networks, seed {options.seed}, {time.perf_counter() - start:.0f} s: {seen['equal']} equal "
        f"({groups} groups), {seen['refused']} refused, {seen['late']} refused only when cutting, "
        f"{seen['failed']} failed"
    )
    return 1 if seen["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
