"""Prove the cut on random networks: equal outputs or a typed refusal, never a crash, a hang or a wrong model.

    python -m benchmarks.fuzz [--count 2000] [--seed 0] [--only NUMBER] [--keep FILE]

Every network is decided by the seed and its number alone; ``--only`` runs one of them and prints it. With ``--keep``
the outcome so far is in a file, and a run that was stopped goes on from there.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from testing.random_nets import Outcome, RandomNet, build, check

PATIENCE_S = 60  # of the processor: a busy machine is no reason to call a network slow


class Hang(BaseException):
    """A network took far too long; no error, so that the library cannot take it for one of the network's."""


def _too_long(*_: Any) -> None:
    raise Hang(f"no answer after {PATIENCE_S} s")


def network(seed: int, number: int) -> RandomNet:
    """The network of this number."""
    torch.manual_seed(number)
    return build(random.Random(f"{seed}/{number}").randrange)


def attempt(net: RandomNet, number: int) -> Outcome:
    """The outcome of one network; whatever is raised is a failure."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
    try:
        return check(net, number)
    except (Exception, Hang) as error:
        where = "".join(traceback.format_exception(error)[-3:])
        return Outcome("failed", f"{type(error).__name__}: {error}\n{where}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@dataclass
class Tally:
    """The outcome of the first ``done`` networks."""

    seed: int
    done: int = 0
    groups: int = 0
    seconds: float = 0.0  # of the processor
    seen: dict[str, int] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    def add(self, number: int, outcome: Outcome, seconds: float) -> None:
        """One more."""
        self.done, self.groups, self.seconds = number + 1, self.groups + outcome.groups, self.seconds + seconds
        self.seen[outcome.kind] = self.seen.get(outcome.kind, 0) + 1
        if outcome.kind == "failed":
            self.failed.append(number)

    def __str__(self) -> str:
        """The closing line."""
        counts = [self.seen.get(kind, 0) for kind in ("equal", "refused", "late", "failed")]
        return (
            f"{self.done} networks, seed {self.seed}, {self.seconds:.0f} s: {counts[0]} equal ({self.groups} groups), "
            f"{counts[1]} refused, {counts[2]} refused only when cutting, {counts[3]} failed"
        )


def read(path: Path | None, seed: int) -> Tally:
    """What a run with this seed has kept, or a new start."""
    if path is not None and path.exists():
        kept = Tally(**json.loads(path.read_text(encoding="utf-8")))
        if kept.seed == seed:
            return kept
    return Tally(seed)


def keep(path: Path | None, tally: Tally) -> None:
    """Write it, whole or not at all."""
    if path is not None:
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(tally), indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)


def show(net: RandomNet, outcome: Outcome, seed: int, number: int) -> None:
    """One network in full, and how to run it again."""
    print(f"\n{outcome.kind}: {outcome.detail}\n{net.script}")
    print(f"again: python -m benchmarks.fuzz --seed {seed} --only {number}", flush=True)


def main() -> int:
    """Run them all; 1 if any failed."""
    parser = argparse.ArgumentParser(description="Prove the cut on random networks.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run and print the network of this number")
    parser.add_argument("--keep", type=Path, help="a file for the outcome so far; an old one is gone on with")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only is not None:
        net = network(options.seed, options.only)
        outcome = attempt(net, options.only)
        show(net, outcome, options.seed, options.only)
        return 1 if outcome.kind == "failed" else 0
    tally = read(options.keep, options.seed)
    for number in range(tally.done, options.count):
        started, net = time.process_time(), network(options.seed, number)
        outcome = attempt(net, number)
        tally.add(number, outcome, time.process_time() - started)
        if outcome.kind == "failed":
            show(net, outcome, options.seed, number)
        if number % 100 == 99 or outcome.kind == "failed":
            keep(options.keep, tally)
        if sys.stderr.isatty() or number % 100 == 99:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{tally.done}/{options.count} {tally.seen}", end=end, file=sys.stderr, flush=True)
    keep(options.keep, tally)
    print(f"\n{tally}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
