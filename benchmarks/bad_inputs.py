"""Try some hundred mistakes and count what becomes of them: clear errors, tracebacks, nothing at all.

python -m benchmarks.bad_inputs [--area python] [--only TEXT] [--all]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch

from pcshrink.common.tables import text_table
from testing.bad_inputs.case import Case, judge
from testing.bad_inputs.command_line import command_line
from testing.bad_inputs.files import files
from testing.bad_inputs.place import Place
from testing.bad_inputs.python_calls import python_calls
from testing.bad_inputs.python_more import python_more
from testing.bad_inputs.recipes import recipes

KINDS = ("clear", "traceback", "silent")


def every_case() -> list[Case]:
    """The whole list."""
    return [*command_line(), *recipes(), *python_calls(), *python_more(), *files()]


def main() -> None:
    """Count, and show what was not clear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--area", default="", help="only this area")
    parser.add_argument("--only", default="", help="only names with this text")
    parser.add_argument("--all", action="store_true", help="show what every case said")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="bad-inputs-") as folder:
        place = Place(Path(folder))
        for case in every_case():
            if options.area not in case.area or options.only not in case.name:
                continue
            outcome = judge(case, place)
            counts.setdefault(case.area, Counter())[outcome.kind] += 1
            if options.all or outcome.kind != "clear":
                print(f"{outcome.kind:9} {case.area}: {case.name}: {' '.join(outcome.said.split())[:300]}", flush=True)
    rows = [[area, *(str(count[kind]) for kind in KINDS), str(count.total())] for area, count in counts.items()]
    total = sum(counts.values(), Counter())
    last = ["all", *(str(total[kind]) for kind in KINDS), str(total.total())]
    print(text_table(rows, head=("", *KINDS, "tried"), total=last))
    sys.exit(total["traceback"] + total["silent"] > 0)


if __name__ == "__main__":
    main()
