"""Methods side by side: the same dense start, the same epochs, the same counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcshrink.config import is_number
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method
from pcshrink.sweep.choice import Choice, all_choices, read_choice
from pcshrink.sweep.folder import open_sweep
from pcshrink.sweep.plot import Point, tradeoff_svg
from pcshrink.sweep.runner import Say, run_all
from pcshrink.sweep.runs import Outcome, Run
from pcshrink.sweep.start import common_start, given_weights, train_start
from pcshrink.sweep.table import MEASURED, Column, Report, Row, Table, about, dense_row, measured
from pcshrink.sweep.timing import time_all
from pcshrink.sweep.vary import check_count, seeds_of, shrink_section, with_budget, with_method, with_overrides
from pcshrink.train.recipe.schema import Recipe

COLUMNS = (
    Column("method", "method", side="<"),
    Column("budget", "budget", "{:g}".format),
    *MEASURED,
    Column("epochs", "epochs"),
    Column("teacher", "teacher", side="<"),
    Column("kind", "kind", side="<"),
    Column("needs", "needs", side="<"),
    Column("budget_by", None),
    Column("reason", "why not", side="<"),
)


@dataclass(frozen=True)
class _Entry:
    """One row to be: a method at a budget, or at its own knob (None), with a run for each seed."""

    choice: Choice
    budget: float | None
    runs: Sequence[Run]


def compare(
    recipe: Recipe,
    out: str | Path,
    *,
    methods: Sequence[str] = (),
    budgets: Sequence[float] = (0.5,),
    seeds: int = 3,
    jobs: int = 1,
    weights: str | Path | None = None,
    trust: bool = False,
    say: Say | None = None,
) -> Report:
    """Run every method at every budget, and write one table and one figure.

    What is finished in ``out`` is not run again, what was stopped goes on. A run that fails becomes a row with the
    reason.

    Args:
        recipe: What all runs share; its shrink section says what is limited and how it is counted.
        out: The folder for everything.
        methods: Names of methods, also with settings (``pcs+allocation=uniform``); by default all known ones and the
            variants that they name. Those that take no budget run once, at their own knob.
        budgets: Shares of the dense network's cost.
        seeds: Runs of each, with seeds from the recipe's upwards.
        jobs: Runs at a time.
        weights: A state dict to start from, instead of training the recipe's dense phase.
        trust: Run code of the user's own (``package.module:callable``) that the recipe names.
        say: Told what runs and what is left.

    Raises:
        ConfigError: A name, a budget, a number or the folder cannot be; nothing was run.
        Interrupted: A signal came while the dense start was trained.
    """
    shrink_section(recipe, "compare")
    chosen = [read_choice(name) for name in dict.fromkeys(methods or all_choices())]
    _check_budgets(budgets)
    check_count("jobs", jobs)
    numbers = seeds_of(recipe, seeds)
    with open_sweep(out, given_weights(recipe, weights), trust=trust) as sweep:
        entries = _plan(common_start(sweep), chosen, budgets, numbers)
        _check_any(entries)
        train_start(sweep, say)
        outcomes, stopped = run_all(sweep, [run for entry in entries for run in entry.runs], jobs=jobs, say=say)
        if sweep.recipe.output.latency and not stopped:
            outcomes = time_all(outcomes, say, trust=trust)
        table = _table(sweep.recipe, entries, outcomes)
        return Report(table, table.write(Path(out), _figure(table)), stopped)


def _check_budgets(budgets: Sequence[float]) -> None:
    wrong = [budget for budget in budgets if not is_number(budget) or not 0 < budget < 1]
    if wrong or not budgets:
        message = f"budgets must be shares above 0 and below 1, such as 0.43; got {wrong[0] if wrong else 'none'}"
        raise ConfigError(message)


def _plan(recipe: Recipe, chosen: Sequence[Choice], budgets: Sequence[float], numbers: range) -> list[_Entry]:
    entries = []
    for choice in chosen:
        for budget in dict.fromkeys(budgets) if choice.method.takes_budget() else (None,):
            label = f"{choice.label}-{budget:g}" if budget is not None else choice.label
            entries.append(_Entry(choice, budget, [_run(f"{label}-s{n}", recipe, choice, budget, n) for n in numbers]))
    return entries


def _check_any(entries: Sequence[_Entry]) -> None:
    """Refuse a comparison of which nothing can run, before the dense network is trained for it."""
    reasons = [run.refused for entry in entries for run in entry.runs]
    if all(reasons):
        message = f"none of these runs is possible: {reasons[0]}"
        raise ConfigError(message)


def _run(label: str, recipe: Recipe, choice: Choice, budget: float | None, seed: int) -> Run:
    """A run; what a method cannot do is no mistake of the whole comparison."""
    try:
        changed = with_method(with_budget(recipe, budget), choice.name)
        return Run(label, with_overrides(changed, [f"seed={seed}", *choice.overrides]))
    except ConfigError as error:
        return Run(label, refused=str(error))


def _table(recipe: Recipe, entries: Sequence[_Entry], outcomes: Sequence[Outcome]) -> Table:
    rows: list[Row] = []
    epochs = recipe.epochs
    teacher = recipe.distill.teacher if recipe.distill is not None else "none"
    dense = dense_row(outcomes, recipe)
    if dense is not None:
        rows.append({"method": "dense", "epochs": epochs.dense or None} | dense)
    left = iter(outcomes)
    for entry in entries:
        method = entry.choice.method
        facts = {
            "method": entry.choice.text, "budget": entry.budget, "epochs": trained_epochs(recipe, method),
            "teacher": "its own" if "teacher" in method.needs else teacher,
            "kind": "static" if method.static else "dynamic", "needs": _needs(method), "budget_by": method.budget_by,
        }  # fmt: skip
        rows.append(facts | measured([next(left) for _ in entry.runs], recipe))
    return Table("compare", about(recipe), COLUMNS, rows)


def trained_epochs(recipe: Recipe, method: type[Method[Any]]) -> int:
    """Epochs of training after the dense start: a method that only watches while it shrinks trains nothing then."""
    epochs = recipe.epochs
    return epochs.total - epochs.dense - (epochs.shrink if method.watches else 0)


def _needs(method: type[Method[Any]]) -> str:
    marks = [*method.needs] + ([] if method.takes_budget() else ["own knob"])
    return ", ".join(marks)


def _figure(table: Table) -> str:
    dots = [
        Point(str(row["method"]), 100 * row["madds_share"], row["error"], row.get("spread") or 0.0)
        for row in table.rows
        if row.get("error") is not None and row.get("madds_share") is not None
    ]
    return tradeoff_svg(f"{table.about['network']}: error against cost", dots, "error, %")
