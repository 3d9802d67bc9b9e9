"""The first two sections: what came out, and the proof that the compact network is the masked one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pcshrink.report.compare import amount, interval, percent
from pcshrink.report.parts import Section, Table
from pcshrink.report.runs import Run
from pcshrink.train.outcome import BudgetOutcome

MEASURED = {
    "gated_error": "error, gated", "masked_error": "error, masked", "compact_error": "error, compact", "leak": "leak",
    "highest": "highest score cut",
}  # fmt: skip
NAMES = {"madds": "multiply-adds", "params": "parameters", "mem_access": "memory access"}


def verdict(runs: Sequence[Run]) -> Section:
    """Error, costs and latency before and after, with intervals where they are known."""
    section = Section(key="verdict", title="Verdict")
    for run in runs:
        if run.result:
            section.text.append(_sentence(run, alone=len(runs) == 1))
            heading = run.name if len(runs) > 1 else ""
            after = "compact>" if run.cuts else "mean input>"
            section.tables.append(Table(heading=heading, columns=("", "dense>", after, "left>"), rows=_rows(run)))
        else:
            section.missing.append(_progress(run))
    if any(run.images for run in runs):
        section.notes.append(
            "Small figures are ranges: of an error the 95 % interval that so many evaluation images allow, of a "
            "latency that of the repeated measurement. Costs are for one sample, convolutions and linear layers."
        )
    return section


def _sentence(run: Run, *, alone: bool) -> str:
    dense, compact = run.dense, run.compact
    start = "" if alone else f"{run.name}: "
    parts = []
    if dense.get("madds") and compact.get("madds") and compact["madds"] != dense["madds"]:
        parts.append(f"{percent(compact['madds'] / dense['madds'])} of the multiply-adds are left")
    if dense.get("error") is not None and dense["error"] != compact.get("error"):
        change = compact["error"] - dense["error"]
        parts.append(f"the error went from {dense['error']:.2f} % to {compact['error']:.2f} % ({change:+.2f} points)")
    elif compact.get("error") is not None:
        parts.append(f"the error is {compact['error']:.2f} %")
    said = ", ".join(parts)
    return f"{start}{said}." if start else said[:1].upper() + said[1:] + "."


def _progress(run: Run) -> str:
    row = run.rows[-1]
    parts = [f"{run.name} is still running: {row.epoch + 1} of {row.epochs or '?'} epochs are done"]
    if row.error is not None:
        parts.append(f"the error is {row.error:.2f} %")
    if row.madds_share is not None:
        parts.append(f"{percent(row.madds_share)} of the multiply-adds are left")
    return ", ".join(parts) + "."


def _rows(run: Run) -> list[list[str]]:
    dense, compact = run.dense, run.compact
    rows = [["error", _error(dense.get("error"), run.images), _error(compact.get("error"), run.images), _points(run)]]
    for key, name in NAMES.items():
        before, after = dense.get(key), compact.get(key)
        rows.append([name, amount(before), amount(after), percent(after / before) if before and after else "–"])
    before, after = dense.get("latency_ms"), compact.get("latency_ms")
    if before or after:
        left = percent(after / before) if before and after else "–"
        where = compact.get("latency_runtime")
        rows.append([f"latency, {where}" if where else "latency", _latency(dense), _latency(compact), left])
    return rows


def _error(value: float | None, images: int | None) -> str:
    if value is None:
        return "–"
    if not images:
        return f"{value:.2f} %"
    low, high = interval(value, images)
    return f"{value:.2f} %\n{low:.2f} to {high:.2f}"


def _points(run: Run) -> str:
    before, after = run.dense.get("error"), run.compact.get("error")
    return "–" if before is None or after is None or run.method == "dense" else f"{after - before:+.2f}\npoints"


def _latency(costs: dict[str, object]) -> str:
    if costs.get("latency_ms") is None:
        return "–"
    range_ = ""
    if costs.get("latency_low_ms") is not None:
        range_ = f"\n{costs['latency_low_ms']:.2f} to {costs['latency_high_ms']:.2f}"
    return f"{costs['latency_ms']:.2f} ms{range_}"


def proof(runs: Sequence[Run]) -> Section:
    """The error of the gated, masked and compact network when the channels were cut, and the budget."""
    section = Section(key="proof", title="Proof")
    cuts = {run.name: (run.result.get("cut") or _recorded_cut(run)) if run.cuts else None for run in runs}
    images = {run.name: run.images for run in runs}
    if any(cuts.values()):
        section.text.append(
            "Masked: the channels that go are forced to zero. Compact: they are cut out. The two must agree. Gated: as "
            "trained, nothing forced; the leak is the largest factor that any evaluation image still gave to a "
            "channel that went."
        )
        rows = [[name, *(_figure(cut, kind) for cut in cuts.values() if cut)] for kind, name in MEASURED.items()]
        rows.append(["masked = compact", *(_agree(cut, images[name]) for name, cut in cuts.items() if cut)])
        called = [f"{name}>" for name, cut in cuts.items() if cut]
        section.tables.append(Table(columns=("when the channels were cut", *called), rows=rows))
    for run in runs:
        if not cuts[run.name]:
            section.missing.append(f"{run.name}: {_why_uncut(run)}, so there is nothing to prove.")
        elif run.whole:
            section.missing.append(f"{run.name}: no channel reached zero, so none was cut.")
        budget = run.result.get("budget")
        if budget:
            section.text.append(_budget(run, BudgetOutcome.from_dict(budget), alone=len(runs) == 1))
    return section


def _why_uncut(run: Run) -> str:
    if not run.cuts:
        return "its gates choose for each input and nothing is cut"
    return "nothing was cut in this run" if run.method == "dense" else "nothing is cut yet"


def _recorded_cut(run: Run) -> dict[str, Any] | None:
    cuts = [cut.facts for cut in run.history.cuts if cut.facts] if run.history is not None else []
    return cuts[-1] if cuts else None


def _figure(cut: dict[str, object], kind: str) -> str:
    value = cut.get(kind)
    if value is None:
        return "–"
    return f"{value:.2f} %" if kind.endswith("error") else f"{value:.2g}"


def _agree(cut: dict[str, Any], images: int | None) -> str:
    final, compact = cut.get("final_masked_error"), cut.get("compact_error")
    masked = cut.get("masked_error") if final is None else final
    if masked is None or compact is None:
        return "not measured"
    if masked == compact:
        return "yes"
    apart = abs(masked - compact)
    return (
        f"but for {round(apart * images / 100):,} of {images:,} images" if images else f"differ by {apart:.2f} points"
    )


def _budget(run: Run, budget: BudgetOutcome, *, alone: bool) -> str:
    start = "The budget" if alone else f"{run.name}: the budget"
    doubt = f": {budget.doubt.lower()}" if budget.doubt else ""
    if budget.timed:
        latency = f"the dense latency ({budget.runtime})"
        spread = "" if budget.low is None else f" ({budget.low:.3f} to {budget.high:.3f})"
        return f"{start} was {budget.limit:g} of {latency}; measured {budget.reached:.3f}{spread}{doubt}."
    return (
        f"{start} was {budget.limit:,.0f} {NAMES.get(budget.metric, budget.metric)} ({budget.convention} convention); "
        f"reached {budget.reached:,} ({percent(budget.reached / budget.limit)} of it){doubt}."
    )
