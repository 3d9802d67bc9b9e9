"""Write all methods side by side, with the paper's printed figures, into ``docs/rivals.md``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.trial.places import RIVALS_PAGE
from benchmarks.trial.rows import OWN_KNOB, RIVALS, RIVALS_32, START_32, TRIAL, Row
from benchmarks.trial.table import read_runs
from pcshrink.methods.registry import method_class
from pcshrink.report.references import Reference, references_for

HEAD = """# All methods on CIFAR-10

ResNet-20 from `zoo/resnet20-dense` (8.83 %), 60 epochs each, the same augmentation, learning rates and counting, no
teacher, last epoch, `train.precision: auto`. Madds as the paper counts: for a static method those of the network that
is left, for a dynamic one the mean over the test set of what really ran, with its own modules; kernels stay whole
there. Methods marked "own knob" take no budget. "Paper" is what the paper prints, from longer trainings.

    python -m benchmarks.trial run      # what is missing; `keep` and `table` follow
"""
COLUMNS = """
| method | kind | seeds | error | spread | madds | params | mem_access | paper: error | madds |
|---|---|---|---|---|---|---|---|---|---|"""


def write_rivals() -> None:
    """All rows that have a finished run, once there is a rival among them."""
    if not any(read_runs(row) for row in RIVALS):
        return
    parts = [HEAD, COLUMNS, *_lines((*TRIAL, *RIVALS), "resnet20")]
    if any(read_runs(row) for row in RIVALS_32):
        start = read_runs(START_32)[0]["compact"]["error"]
        parts += ["", f"ResNet-32 in the same way, from a dense network of {start:.2f} %:", COLUMNS]
        parts += _lines(RIVALS_32, "resnet32")
    slips = [f"- {row.method}: {row.note}." for row in references_for("resnet20", "cifar10") if row.note]
    parts += ["", "Slips in the printed rows:", "", *slips, ""]
    RIVALS_PAGE.write_text("\n".join(parts), encoding="utf-8")


def _lines(rows: Sequence[Row], network: str) -> list[str]:
    """Those of which a run is finished, with what the paper prints for this network."""
    printed = {reference.method: reference for reference in references_for(network, "cifar10")}
    return [_line(row, printed.get(_name(row))) for row in rows if read_runs(row)]


def _name(row: Row) -> str:
    """As the paper calls it."""
    return "PCS" if row.title == TRIAL[0].title else row.title.removesuffix(OWN_KNOB)


def _line(row: Row, paper: Reference | None) -> str:
    runs = read_runs(row)
    networks = [run["compact"] for run in runs]
    errors = [network["error"] for network in networks]
    spread = f"{statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
    madds, params, access = (
        statistics.mean(network[key] for network in networks) for key in ("paper_madds", "params", "paper_mem_access")
    )
    kind = "static" if _method(row).static else "dynamic"
    beside = f"{paper.error:.1f} | {paper.madds / 1e6:.1f} M" if paper is not None else " | "
    return (
        f"| {row.title} | {kind} | {len(runs)} | {statistics.mean(errors):.2f} | {spread} | {madds / 1e6:.2f} M | "
        f"{params:,.0f} | {access / 1e6:.3f} M | {beside} |"
    )


def _method(row: Row) -> type:
    chosen = (setting.partition("=")[2] for setting in row.settings if setting.startswith("shrink.method="))
    return method_class(next(chosen, "pcs"))
