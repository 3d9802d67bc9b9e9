"""Goal and figure side by side, by parts; every run puts its figures into docs/performance.md.

python -m benchmarks.performance [--only step,compact,...] [--seconds 1] [--rounds 9]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable

import torch

from benchmarks.performance import growth, others, profile, steps, surgery
from benchmarks.performance.page import write_page
from benchmarks.performance.rows import Effort, Row, keep, show
from pcshrink.common.allocator import keep_freed_memory

PARTS: dict[str, Callable[[Effort], Iterable[Row]]] = {
    "step": steps.measure_steps,
    "profile": profile.measure_profile,
    "compiled": steps.measure_compiled,
    "compact": steps.measure_compact,
    "run": others.measure_run,
    "memory": others.measure_memory,
    "start": others.measure_start,
    "surgery": surgery.measure_surgery,
    "deployment": others.measure_deployment,
    "growth": growth.measure_growth,
}


def main() -> None:
    """Measure the parts asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long to measure each contestant")
    parser.add_argument(
        "--rounds", type=int, default=9, help="the fewest rounds, even if they take longer than --seconds"
    )
    parser.add_argument("--match", default="", help="of steps, deployed and cut networks, only those that contain this")
    words = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the trainer does
    for part in words.only.split(","):
        began = time.perf_counter()
        rows = []
        for row in PARTS[part](Effort(words.seconds, words.rounds, words.match)):
            rows.append(row)
            print("  ".join(row.cells()), flush=True)
            keep(part, rows)
        write_page()
        print(f"\n{part}, {time.perf_counter() - began:.0f} s\n{show(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
