"""Long trainings on CIFAR-10, all from the same dense network and with the same epochs; writes into docs/findings.md.

    pcshrink data cifar10 --root data/cifar10
    python -m benchmarks.trial run       what is missing; [--only learned-0,random-0] [--cores 0,1] [--minutes 150]
    python -m benchmarks.trial keep      copy results, and checkpoints of unfinished runs, into benchmarks/trial/
    python -m benchmarks.trial table     the tables of docs/findings.md, ablations.md and rivals.md

A run takes 60 to 100 minutes of one core. Start it in the project's folder. Runs that were stopped go on, also on
another machine once they were kept.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.trial.ablations import write_ablations
from benchmarks.trial.keeping import keep_all
from benchmarks.trial.rivals import write_rivals
from benchmarks.trial.rows import run_names, split_name
from benchmarks.trial.running import train_all
from benchmarks.trial.table import write_table


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "keep", "table"))
    parser.add_argument("--runs", type=Path, default=Path("runs/trial"), help="folder of the runs")
    parser.add_argument("--data", type=Path, default=Path("data/cifar10"), help="folder of CIFAR-10")
    parser.add_argument("--only", help="names of runs, in the order to train them; all by default")
    parser.add_argument("--cores", help="one run at a time on each of these; all by default")
    parser.add_argument("--minutes", type=float, default=1e9, help="then write checkpoints and stop")
    given = parser.parse_args()
    if given.what == "run":
        names = given.only.split(",") if given.only else run_names()
        for name in names:
            split_name(name)
        cores = [int(c) for c in given.cores.split(",")] if given.cores else sorted(os.sched_getaffinity(0))
        train_all(names, given.runs, given.data, cores, given.minutes)
    elif given.what == "keep":
        keep_all(given.runs)
    else:
        write_table()
        write_ablations()
        write_rivals()


if __name__ == "__main__":
    main()
