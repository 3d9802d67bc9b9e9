"""Write the paper's ablation tables, with our rows beside the printed ones, into ``docs/ablations.md``."""

from __future__ import annotations

from typing import Any

from benchmarks.trial.places import ABLATIONS_PAGE
from benchmarks.trial.rows import ABLATIONS, Row
from benchmarks.trial.table import read_runs
from pcshrink.sweep.ablations import NAMED
from pcshrink.sweep.paper import PAPER, PaperRow

HEAD = """# The paper's ablations on CIFAR-10

ResNet-20 from `zoo/resnet20-dense`, 10 epochs of shrinking and 20 of settling, one seed, last epoch,
`train.precision: auto`. Short runs: the standard error of one test error is 0.3 points. The paper's rows are
ResNet-18 on ImageNet. Points are against the network that was trained for as many epochs without gates. Madds are
counted as the paper counts.

    python -m benchmarks.trial run --only RUN     # what is missing; `keep` and `table` as for the trial
    pcshrink ablate cifar10-resnet20 --table k    # the same tables with any recipe
"""
COLUMNS = (
    "| setting | error | points | madds left | paper: error | points | madds left |\n|---|---|---|---|---|---|---|"
)


def write_ablations() -> None:
    """Every table of which at least one run is finished."""
    plain = next((run for row in ABLATIONS["generator"] if row.plain for run in read_runs(row)), None)
    parts = [_part(table, rows, plain) for table, rows in ABLATIONS.items() if any(read_runs(row) for row in rows)]
    if parts:
        ABLATIONS_PAGE.write_text("\n".join([HEAD, *parts]), encoding="utf-8")


def _part(table: str, rows: tuple[Row, ...], plain: dict[str, Any] | None) -> str:
    printed = {row.setting: row for row in PAPER[table][1]}
    lines = [_line(row, plain, printed.get(row.title)) for row in rows]
    about = NAMED[table].about
    return "\n".join([f"## {table}\n\n{about[0].upper()}{about[1:]}. Paper: {PAPER[table][0]}.\n", COLUMNS, *lines, ""])


def _line(row: Row, plain: dict[str, Any] | None, paper: PaperRow | None) -> str:
    beside = f"{paper.error:.1f} | {paper.change:+.1f} | {paper.madds_share:.0%}" if paper else " | | "
    runs = read_runs(row)
    if not runs:
        return f"| {row.title} | not run yet | | | {beside} |"
    own = runs[0]["compact"]
    points = f"{own['error'] - plain['compact']['error']:+.2f}" if plain is not None else ""
    left = own["paper_madds"] / runs[0]["dense"]["paper_madds"]
    return f"| {row.title} | {own['error']:.2f} | {points} | {left:.0%} | {beside} |"
