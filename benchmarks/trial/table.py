"""Write what was kept into ``docs/findings.md``, and the first row beside the others into the README."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.trial.places import FINDINGS, KEPT, README
from benchmarks.trial.push import push_table
from benchmarks.trial.rows import (
    AGAIN,
    AGAIN_EPOCHS,
    BRIEF,
    INGREDIENTS,
    LEARNED,
    RIVALS,
    SCRATCH_MUON,
    SEEDS,
    TRIAL,
    TWIN,
    Row,
)

BEGIN, END = "<!-- trial -->", "<!-- end of trial -->"
PUSH_BEGIN, PUSH_END = "<!-- push -->", "<!-- end of push -->"
HEAD = (
    "| row | seeds | error | spread | madds, paper | params | highest error while shrinking | "
    "error before, after the cut | highest salience cut |\n|---|---|---|---|---|---|---|---|---|"
)


def write_table() -> None:
    """Replace what stands between the marks of the page."""
    parts = [
        _table(TRIAL),
        _verdict(),
        _table(RIVALS, only_finished=True),
        _table([SCRATCH_MUON], only_finished=True),
        _widths(),
        _ingredients(),
        _again(),
    ]
    _replace(FINDINGS, BEGIN, END, "\n\n".join(part for part in parts if part))
    _replace(FINDINGS, PUSH_BEGIN, PUSH_END, push_table(*map(_first_epochs, (TRIAL[0], TWIN))))
    _replace(README, BEGIN, END, _errors_alone())


def _replace(page: Path, begin: str, end: str, text: str) -> None:
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _errors_alone() -> str:
    """The first row and what it is compared with, without its own variants."""
    rows = [row for row in TRIAL if not row.variant and read_runs(row)]
    rows.sort(key=lambda row: statistics.mean(run["compact"]["error"] for run in read_runs(row)))
    lines = [f"| {row.title} | {len(read_runs(row))} | {_error_and_spread(read_runs(row))} |" for row in rows]
    return "\n".join(["| | seeds | error, % | spread |\n|---|---|---|---|", *lines])


def read_runs(row: Row) -> list[dict[str, Any]]:
    """The results of a row's finished runs, each with its epochs."""
    found = []
    for seed in SEEDS:
        folder = KEPT / f"{row.name}-{seed}"
        if (folder / "result.json").is_file():
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            found.append(result | {"epochs": _epochs(folder)})
    return found


def _epochs(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _first_epochs(row: Row) -> list[dict[str, Any]]:
    runs = read_runs(row)
    return runs[0]["epochs"] if runs else []


def _table(rows: Sequence[Row], *, only_finished: bool = False) -> str:
    lines = [_line(row) for row in rows if not only_finished or read_runs(row)]
    return "\n".join([HEAD, *lines]) if lines else ""


def _line(row: Row) -> str:
    runs = read_runs(row)
    if not runs:
        return f"| {row.title} | 0 | not run yet | | | | | | |"
    madds = statistics.mean(run["compact"]["paper_madds"] for run in runs) / 1e6
    params = statistics.mean(run["compact"]["params"] for run in runs)
    seen = [e["error"] for run in runs for e in run["epochs"] if e["phase"] == "shrink" and e["error"] is not None]
    cuts = [run["cut"] for run in runs if run.get("cut")]
    cut = f"{_mean(cuts, 'gated_error'):.2f}, {_mean(cuts, 'masked_error'):.2f}" if cuts else ""
    highest = [c["highest"] for c in cuts if c["highest"] is not None]
    return (
        f"| {row.title} | {len(runs)} | {_error_and_spread(runs)} | {madds:.2f} M | {params:,.0f} | "
        f"{f'{max(seen):.2f}' if seen else ''} | {cut} | {f'{max(highest):.2g}' if highest else ''} |"
    )


def _mean(cuts: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.mean(cut[key] for cut in cuts)


def _verdict() -> str:
    """Whether learned widths are ahead of a row by more than the spread, once both have several seeds."""
    own = [run["compact"]["error"] for run in read_runs(TRIAL[0])]
    lines = []
    for row in TRIAL[1:]:
        errors = [run["compact"]["error"] for run in read_runs(row)]
        if len(own) < 2 or len(errors) < 2:
            continue
        ahead, spread = (
            statistics.mean(errors) - statistics.mean(own),
            max(statistics.stdev(own), statistics.stdev(errors)),
        )
        word = "ahead by more than the spread" if ahead > spread else "not ahead by more than the spread"
        lines.append(f"- {TRIAL[0].title} against {row.title}: {ahead:+.2f} points, spread {spread:.2f}: {word}.")
    return "\n".join(lines)


def _ingredients() -> str:
    """What a single change does to the first row in fewer epochs."""
    table = _table(INGREDIENTS, only_finished=True)
    epochs = " and ".join(setting.partition(".")[2].replace("=", " ") for setting in BRIEF)
    return f"One thing changed at a time, in fewer epochs ({epochs}):\n\n{table}" if table else ""


def _again() -> str:
    """What a single change does to a small network that fits the training images."""
    lines = [_again_line(row) for row in AGAIN if read_runs(row)]
    head = (
        f"The cut network of `{LEARNED}-0` trained for {AGAIN_EPOCHS} epochs more, from learning rate 0.1; the loss is "
        "that of the last epoch on training images, with a teacher's part where there is one:"
    )
    return (
        "\n".join([f"{head}\n\n| row | seeds | error | spread | loss |\n|---|---|---|---|---|", *lines])
        if lines
        else ""
    )


def _again_line(row: Row) -> str:
    runs = read_runs(row)
    loss = statistics.mean(run["epochs"][-1]["loss"] for run in runs)
    return f"| {row.title} | {len(runs)} | {_error_and_spread(runs)} | {loss:.3f} |"


def _error_and_spread(runs: Sequence[dict[str, Any]]) -> str:
    """Two cells."""
    errors = [run["compact"]["error"] for run in runs]
    spread = f"{statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
    return f"{statistics.mean(errors):.2f} | {spread}"


def _widths() -> str:
    """Widths by group, learned beside the others, of the first seed."""
    rows = [
        row for row in TRIAL if row.name in (LEARNED, "learned-madds", "uniform", "torch-pruning") and read_runs(row)
    ]
    if not rows:
        return ""
    widths = [read_runs(row)[0]["widths"] for row in rows]
    lines = [f"| group | {' | '.join(row.title for row in rows)} |", "|---" * (len(rows) + 1) + "|"]
    lines += [f"| `{group}` | {' | '.join(str(w.get(group, '')) for w in widths)} |" for group in widths[0]]
    return "\n".join(lines)
