"""The commands about several methods and settings: ``methods``, ``compare`` and ``ablate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcshrink.cli.options import AsJson, examples
from pcshrink.cli.train import Quiet, RecipeName, Settings, TrustCode
from pcshrink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pcshrink.sweep.table import Report

Out = Annotated[Path, typer.Option("--out", help="Folder for all runs, the table and the figure.")]
Jobs = Annotated[int, typer.Option("--jobs", help="How many runs to train at a time.")]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", help="Dense weights that all runs start from (default: trained once by the recipe)."),
]
Seeds = Annotated[int, typer.Option("--seeds", help="Runs of each, with different seeds.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command("methods", epilog=examples("pcshrink methods", "pcshrink methods pcs --json"))(methods)
    app.command(
        "compare",
        epilog=examples(
            "pcshrink compare digits --methods pcs,truncation,random --budgets 0.6,0.4 --out runs/side-by-side",
            "pcshrink compare cifar10-resnet20-b --jobs 2 --weights dense.safetensors --out runs/rivals",
        ),
    )(compare)
    app.command(
        "ablate",
        epilog=examples(
            "pcshrink ablate digits --over shrink.alpha=0.05,0.1,0.5 --out runs/alpha",
            "pcshrink ablate cifar10-resnet20-b --table truncation --out runs/ablations",
        ),
    )(ablate)


def _ablation_names() -> list[str]:
    from pcshrink.sweep.ablations import NAMED

    return list(NAMED)


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method and its settings (default: list all).")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods that can shrink a network, or show one."""
    from pcshrink.report.methods import list_methods, method_text, methods_text, show_method

    if name is None:
        known = list_methods()
        typer.echo(json.dumps(known, indent=1) if as_json else methods_text(known))
    else:
        one = show_method(name)
        typer.echo(json.dumps(one, indent=1) if as_json else method_text(one))


def compare(
    recipe: RecipeName,
    out: Out,
    names: Annotated[
        str,
        typer.Option(
            "--methods", metavar="NAMES", help='Methods, for example pcs,pcs+allocation=uniform,random; or "all".'
        ),
    ] = "all",
    budgets: Annotated[
        str, typer.Option("--budgets", metavar="SHARES", help="Shares of the dense network's cost: 0.6,0.43,0.3.")
    ] = "0.5",
    seeds: Seeds = 3,
    jobs: Jobs = 1,
    weights: Weights = None,
    settings: Settings = None,
    trust: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods on equal terms: one table, one figure.

    Runs what is missing in the folder; stopped runs go on.
    """
    from pcshrink.sweep.compare import compare as run
    from pcshrink.train.recipe.read import load_recipe

    chosen = [] if names.strip() == "all" else _words(names, "--methods")
    shares = [_share(word) for word in _words(budgets, "--budgets")]
    checked = load_recipe(recipe, settings or (), trust=trust)
    _finish(
        lambda: run(
            checked, out, methods=chosen, budgets=shares, seeds=seeds, jobs=jobs, weights=weights, trust=trust,
            say=None if quiet else _say,
        )
    )  # fmt: skip


def ablate(
    recipe: RecipeName,
    out: Out,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over", metavar="SECTION.KEY=VALUE,...", help="Values of a setting; several give all combinations."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="A table of the paper: k, alpha, lambda, generator, policy or truncation.",
            autocompletion=_ablation_names,
        ),
    ] = None,
    seeds: Seeds = 1,
    jobs: Jobs = 1,
    weights: Weights = None,
    settings: Settings = None,
    trust: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Compare settings of a recipe: one table, one figure.

    Runs what is missing in the folder; stopped runs go on.
    """
    from pcshrink.sweep.ablate import ablate as run
    from pcshrink.train.recipe.read import load_recipe

    checked = load_recipe(recipe, settings or (), trust=trust)
    _finish(
        lambda: run(
            checked, out, over=over or (), table=table, seeds=seeds, jobs=jobs, weights=weights, trust=trust,
            say=None if quiet else _say,
        )
    )  # fmt: skip


def _finish(run: Callable[[], Report]) -> None:
    """Run, print, and end with 1 if a row lacks a run, or as a signal says."""
    from pcshrink.train.interrupt import Interrupted

    try:
        report = run()
    except Interrupted as stop:
        sys.stderr.write(f"{stop}\n")
        raise typer.Exit(stop.code) from None
    typer.echo(report.table.text())
    typer.echo(f"\nwritten: {', '.join(map(str, report.files))}")
    if report.stopped:
        sys.stderr.write("stopped; the same command goes on with what is left\n")
        raise typer.Exit(128 + report.stopped)
    if report.table.failed:
        raise typer.Exit(1)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        message = f"{option} wants a list such as a,b without gaps, got {text!r}"
        raise ConfigError(message)
    return words


def _share(word: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        message = f"--budgets wants shares such as 0.6,0.43, got {word!r}"
        raise ConfigError(message) from error
