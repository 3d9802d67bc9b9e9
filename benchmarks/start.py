"""How long it takes to start: Python alone, the import of pcshrink, and its help.

    python benchmarks/start.py [--rounds 15]

The contestants take turns, every second round backwards; each figure is a median. Wall time is what a user waits, and
CPU time is what is left of it on a machine that does nothing else. The goal is for both, beside Python's own start.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

from pcshrink.common.tables import text_table

GOAL_SECONDS = 0.5  # of `pcshrink --help`, beside Python's own start
PYTHON = "python -c pass"
CONTESTANTS = {
    PYTHON: ["-c", "pass"],
    'python -c "import pcshrink"': ["-c", "import pcshrink"],
    "pcshrink --help": ["-m", "pcshrink", "--help"],
}


def run_once(arguments: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    wall, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def measure(rounds: int) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of each contestant, after one warm-up each."""
    for arguments in CONTESTANTS.values():
        run_once(arguments)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTESTANTS}
    order = list(CONTESTANTS)
    for _ in range(rounds):
        for name in order:
            times[name].append(run_once(CONTESTANTS[name]))
        order.reverse()
    return {
        name: (statistics.median(wall for wall, _ in taken), statistics.median(cpu for _, cpu in taken))
        for name, taken in times.items()
    }


def main() -> None:
    """Print goal and figures side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    medians = measure(parser.parse_args().rounds)
    base_wall, base_cpu = medians[PYTHON]
    rows = []
    for name, (wall, cpu) in medians.items():
        beside = f"{wall - base_wall:.3f}", f"{cpu - base_cpu:.3f}"
        goal = f"{GOAL_SECONDS:.3f}" if name == "pcshrink --help" else ""
        rows.append([name, f"{wall:.3f}", f"{cpu:.3f}", *(beside if name != PYTHON else ("", "")), goal])
    head = ["seconds", "wall", "CPU", "wall beside Python", "CPU beside Python", "goal beside Python"]
    print(text_table(rows, head=head))


if __name__ == "__main__":
    main()
