"""Settings one against the other: any keys of a recipe, or the paper's own ablation tables."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from pcshrink.errors import ConfigError
from pcshrink.sweep.ablations import NAMED, Ablation, Setting
from pcshrink.sweep.folder import open_sweep
from pcshrink.sweep.paper import PAPER, PaperRow
from pcshrink.sweep.plot import Point, tradeoff_svg
from pcshrink.sweep.runner import Say, run_all
from pcshrink.sweep.runs import Outcome, Run
from pcshrink.sweep.start import common_start, given_weights, train_start
from pcshrink.sweep.table import (
    MEASURED,
    Column,
    Report,
    Row,
    Table,
    about,
    dense_row,
    measured,
    percent,
    points,
    share,
)
from pcshrink.sweep.timing import time_all
from pcshrink.sweep.vary import check_count, seeds_of, shrink_section, with_budget, with_overrides, without_shrinking
from pcshrink.train.recipe.schema import Recipe

COLUMNS = (
    Column("setting", "setting", side="<"),
    *MEASURED,
    Column("change", "points", points),
    Column("paper_error", "paper: error %", percent),
    Column("paper_change", "paper: points", points),
    Column("paper_madds_share", "paper: left", share),
    Column("paper_latency_share", "paper: latency", share),
    Column("reason", "why not", side="<"),
)
FIXED = ("model", "epochs.dense", "seed")  # what all runs share


def ablate(
    recipe: Recipe,
    out: str | Path,
    *,
    over: Sequence[str] = (),
    table: str | None = None,
    seeds: int = 1,
    jobs: int = 1,
    weights: str | Path | None = None,
    trust: bool = False,
    say: Say | None = None,
) -> Report:
    """Run a recipe with other settings, and write one table and one figure.

    What is finished in ``out`` is not run again, what was stopped goes on; several tables may share a folder, and then
    also the dense start and equal runs. A run that fails becomes a row with the reason.

    Args:
        recipe: What all runs share.
        out: The folder for everything.
        over: ``section.key=value,value,...`` texts; with several, all combinations.
        table: Instead of ``over``: one of ``ablations.NAMED``, a table of the paper, whose rows then stand beside ours.
        seeds: Runs of each setting, with seeds from the recipe's upwards.
        jobs: Runs at a time.
        weights: A state dict to start from, instead of training the recipe's dense phase.
        trust: Run code of the user's own (``package.module:callable``) that the recipe names.
        say: Told what runs and what is left.

    Raises:
        ConfigError: A name, a key, a value, a number or the folder cannot be; nothing was run.
        Interrupted: A signal came while the dense start was trained.
    """
    shrink_section(recipe, "ablate")
    check_count("jobs", jobs)
    numbers = seeds_of(recipe, seeds)
    name, chosen = asked_for(over, table)
    with open_sweep(out, given_weights(recipe, weights), trust=trust) as sweep:
        start = common_start(sweep)
        if table is not None:
            start = with_overrides(start, ["shrink.method=pcs"])
        start = start if chosen.budget else with_budget(start, None)
        runs = [run for setting in chosen.settings for run in _runs(start, setting, numbers)]
        train_start(sweep, say)
        outcomes, stopped = run_all(sweep, runs, jobs=jobs, say=say)
        if sweep.recipe.output.latency and not stopped:
            outcomes = time_all(outcomes, say, trust=trust)
        made = _table(name, chosen, sweep.recipe, outcomes, PAPER[table][1] if table else ())
        return Report(made, made.write(Path(out), _figure(made)), stopped)


def asked_for(over: Sequence[str], table: str | None) -> tuple[str, Ablation]:
    """The name and the settings of an ablation: all combinations of what ``over`` lists, or a table of the paper.

    Raises:
        ConfigError: Not exactly one of the two is given, or it cannot be read.
    """
    if bool(over) == (table is not None):
        message = f"give either --over SECTION.KEY=VALUE,VALUE or --table, one of {', '.join(NAMED)}"
        raise ConfigError(message)
    if table is None:
        axes = [_axis(text) for text in over]
        settings = tuple(Setting(", ".join(changes), changes) for changes in itertools.product(*axes))
        return "+".join(axis[0].partition("=")[0] for axis in axes), Ablation("", settings, budget=True)
    if table not in NAMED:
        near = difflib.get_close_matches(table, NAMED, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(NAMED)}"
        message = f"no ablation is called {table!r}; {hint}"
        raise ConfigError(message)
    return table, NAMED[table]


def _axis(text: str) -> list[str]:
    """``section.key=a,b`` as ``section.key=a`` and ``section.key=b``; commas inside brackets stay."""
    key, _, values = (part.strip() for part in text.partition("="))
    each = [value.strip() for value in re.split(r",(?![^\[{]*[\]}])", values)]
    if not key or not all(each):
        message = f"--over wants section.key=value,value, got {text!r}; for example --over shrink.alpha=0.05,0.1,0.5"
        raise ConfigError(message)
    fixed = next((name for name in FIXED if key == name or key.startswith(f"{name}.")), None)
    if fixed is not None:
        message = f"--over {key}: all runs share {fixed}; change it for all by --set, or in another --out"
        raise ConfigError(message)
    return list(dict.fromkeys(f"{key}={value}" for value in each))


def _runs(recipe: Recipe, setting: Setting, numbers: range) -> list[Run]:
    label = re.sub(r"[^\w.+-]+", "-", setting.label).strip("-.")
    return [Run(f"{label}-s{n}", with_overrides(recipe_of(recipe, setting), [f"seed={n}"])) for n in numbers]


def recipe_of(recipe: Recipe, setting: Setting) -> Recipe:
    """What a row runs."""
    changed = with_overrides(recipe, setting.changes)
    return without_shrinking(changed) if setting.plain else changed


def _table(
    name: str, ablation: Ablation, recipe: Recipe, outcomes: Sequence[Outcome], paper: Sequence[PaperRow]
) -> Table:
    left, seeds = iter(outcomes), len(outcomes) // len(ablation.settings)
    found = [(setting, [next(left) for _ in range(seeds)]) for setting in ablation.settings]
    # A plain run knows the dense network after its own epochs only, not as all runs found it.
    dense = dense_row([outcome for setting, own in found if not setting.plain for outcome in own], recipe)
    rows: list[Row] = [] if dense is None else [{"setting": "dense"} | dense]
    printed = {row.setting: row for row in paper}
    for setting, own in found:
        row = {"setting": setting.label} | measured(own, recipe)
        if row["error"] is not None and dense is not None and dense["error"] is not None:
            row["change"] = row["error"] - dense["error"]
        rows.append(row | _beside(printed.pop(setting.label, None)))
    rows += [{"setting": row.setting} | _beside(row) for row in printed.values()]
    facts = about(recipe)
    if paper:
        facts |= {"ablation": ablation.about, "paper": f"ResNet-18 on ImageNet; {PAPER[name][0]}"}
    return Table(name, facts, COLUMNS, rows)


def _beside(row: PaperRow | None) -> Row:
    if row is None:
        return {}
    return {"paper_error": row.error, "paper_change": row.change, "paper_madds_share": row.madds_share,
            "paper_latency_share": row.latency_share}  # fmt: skip


def _figure(table: Table) -> str:
    dots = []
    for row in table.rows:
        for series, prefix in (("ours", ""), ("paper", "paper_")):
            x, y = row.get(f"{prefix}madds_share"), row.get(f"{prefix}change")
            if x is not None and y is not None:
                dots.append(Point(series, 100 * x, y, label=str(row["setting"])))
    title = f"{table.name}: {table.about['network']}"
    return tradeoff_svg(title, dots, "points of error above the dense network", joined=False)
