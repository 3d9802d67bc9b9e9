"""Prove the cut on known architectures and write docs/coverage.md.

    python -m benchmarks.zoo [--only PATTERN] [--family PATTERN] [--fresh] [--ours] [--page]

Every architecture gets random weights and norms, gates, a random cut, and must give what the masked model gives: within
1e-5 of the largest output in float32, 1e-12 in float64. An exception that is not a ShrinkError is a failure.
Each runs in a process of its own with a bounded time. Results are kept in benchmarks/zoo/results.json after each, so
that a run that was stopped goes on; failures are tried again.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import itertools
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from benchmarks.zoo import huggingface, libraries, page, peer, vision
from benchmarks.zoo.apart import Ended, apart
from benchmarks.zoo.network import Network
from benchmarks.zoo.prove import PATIENCE_S, prove
from benchmarks.zoo.row import Kept, Row


def main() -> int:
    """Run them all; 1 if any failed."""
    parser = argparse.ArgumentParser(description="Prove the cut on known architectures.")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="a glob over the names")
    parser.add_argument("--family", metavar="PATTERN", default="*", help="a glob over the families")
    parser.add_argument("--fresh", action="store_true", help="do again what is chosen, also if there is a result")
    parser.add_argument("--ours", action="store_true", help="leave the other library out")
    parser.add_argument("--page", action="store_true", help="only write the page from the results so far")
    options = parser.parse_args()
    _be_quiet()
    kept, networks = Kept(), list(itertools.chain(vision.networks(), libraries.networks(), huggingface.networks()))
    chosen = [
        n for n in networks if fnmatch.fnmatch(n.name, options.only) and fnmatch.fnmatch(n.family, options.family)
    ]
    if not options.page:
        for package in {n.family.partition(",")[0].lower() for n in chosen}:
            importlib.import_module(package)  # once here, not in every process
        wanted = lambda row: row is None or row.outcome == "failed" or options.fresh  # noqa: E731
        _in_turn(chosen, kept, "prove", _prove, wanted)
    if not options.page and not options.ours:
        _in_turn(chosen, kept, "peer", _compare, lambda row: row is not None and (not row.peer or options.fresh))
    order = [f"{n.family}: {n.name}" for n in networks]
    kept.rows = {key: kept.rows[key] for key in order if key in kept.rows}
    page.write(kept)
    rows = list(kept.rows.values())
    print(f"\n{page.summary(rows)}\nwritten to {page.COVERAGE}")
    return 1 if any(row.outcome == "failed" for row in rows) else 0


def _in_turn(
    chosen: list[Network],
    kept: Kept,
    what: str,
    work: Callable[[Network, Row], Row],
    needed: Callable[[Row | None], bool],
) -> None:
    """Do something with every network for which it is needed; all of our own first, then the other library's."""
    for number, network in enumerate(chosen, 1):
        empty = Row(network.name, network.family, network.shown)
        if needed(kept.rows.get(empty.key)):
            row = work(network, kept.rows.get(empty.key, empty))
            kept.put(row)
            print(f"{what} {number}/{len(chosen)} {row.told(what)}", flush=True)


def _prove(network: Network, row: Row) -> Row:
    try:
        return replace(apart(partial(prove, network), PATIENCE_S), peer=row.peer)
    except Ended as error:
        return Row(network.name, network.family, network.shown, note=str(error), peer=row.peer)


def _compare(network: Network, row: Row) -> Row:
    try:
        return replace(row, peer=apart(partial(peer.outcome, network), peer.PATIENCE_S))
    except Ended as error:
        return replace(row, peer=str(error))


def _be_quiet() -> None:
    """One thread, no messages of the libraries, nothing from the network, no settings of the user's."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ |= {"HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": tempfile.mkdtemp()}


if __name__ == "__main__":
    sys.exit(main())
