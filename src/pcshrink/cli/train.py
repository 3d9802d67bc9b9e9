"""The commands that train: ``train``, ``demo`` and ``recipes``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcshrink.cli.options import examples
from pcshrink.cli.report_page import last_report, live_report
from pcshrink.common.stop import last_words
from pcshrink.errors import CheckpointError

if TYPE_CHECKING:
    from pcshrink.train.recipe.schema import Recipe

RESUME = " --resume"
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only print the result.")]

MISSED = 3  # the exit code of a run that is whole but costs more than its budget


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command(
        "train",
        epilog=examples(
            "pcshrink train digits --out runs/digits",
            "pcshrink train cifar10-resnet20 --set shrink.budget.madds=0.3",
            "pcshrink train my.yaml --out runs/mine --resume",
        ),
    )(train)
    app.command("demo")(demo)
    app.command(
        "recipes",
        epilog=examples("pcshrink recipes digits > my.yaml", "pcshrink recipes --schema > recipe.schema.json"),
    )(recipes)


def _recipe_names() -> list[str]:
    """What a shell offers; it cannot wait for the reader of recipes to be imported."""
    from importlib import resources

    files = [entry.name for entry in resources.files("pcshrink.train.recipe").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


RecipeName = Annotated[
    str,
    typer.Argument(help="A YAML file, or a built-in recipe (see `pcshrink recipes`).", autocompletion=_recipe_names),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a setting of the recipe; may be repeated."),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run a network, data set or runtime of your own (package.module:callable) in the recipe."
    ),
]


def train(
    recipe: RecipeName,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for all files of the run (default: runs/ and the recipe's name)."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")] = False,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Processes, one for each device.")] = 1,
    trust: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Train, shrink and compact a network as a recipe says.

    Ends with code 3 if the network costs more than its budget.
    """
    folder = out or Path("runs") / Path(recipe).stem
    again = _command_to_go_on(recipe, settings or [], folder, devices, trust=trust)
    last_words(lambda: _words_at_the_end(folder, again))
    from pcshrink.train.recipe.read import load_recipe

    checked = load_recipe(recipe, settings or (), trust=trust)
    if resume and _is_first() and not (folder / "recipe.yaml").is_file():  # other machines need not have the files
        message = f"there is no run in {folder} to go on with; leave --resume out to start one"
        raise CheckpointError(message)
    if devices > 1 and "WORLD_SIZE" not in os.environ:
        from pcshrink.cli.launch import launch

        raise typer.Exit(launch(devices))
    _run(checked, folder, resume=resume, quiet=quiet, trust=trust, again=again)


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for all files of the run (default: a new temporary one).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Shrink a small network on embedded digits in a minute or two.

    From end to end, with nothing to download.
    """
    import tempfile

    folder = out or Path(tempfile.mkdtemp(prefix="pcshrink-demo-"))
    again = _command_to_go_on("digits", [], folder, 1)
    last_words(lambda: _words_at_the_end(folder, again))
    from pcshrink.train.recipe.read import load_recipe

    typer.echo("A small residual network learns 1,437 handwritten digits, then loses 60 % of its multiply-adds.")
    _run(load_recipe("digits"), folder, resume=False, quiet=quiet, again=again)
    typer.echo(f"\nTry it: pcshrink eval {folder} --data digits")


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this recipe's YAML (default: list all).", autocompletion=_recipe_names),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of recipes, with which editors check and complete.")
    ] = False,
) -> None:
    """List the built-in recipes, or show one."""
    from pcshrink.common.tables import text_table
    from pcshrink.train.recipe.json_schema import schema_text
    from pcshrink.train.recipe.read import load_recipe, recipe_names, recipe_text

    if schema:
        typer.echo(schema_text().rstrip())
        return
    if name is not None:
        typer.echo(recipe_text(name).rstrip())
        return
    typer.echo(text_table([[each, load_recipe(each).description] for each in recipe_names()], "<"))


def _command_to_go_on(recipe: str, settings: list[str], folder: Path, devices: int, *, trust: bool = False) -> str:
    import shlex

    words = ["pcshrink", "train", recipe, *(w for s in settings for w in ("--set", s)), "--out", str(folder)]
    words += ["--devices", str(devices)] if devices > 1 else []
    words += ["--trust"] if trust else []
    return shlex.join(words) + RESUME


def _words_at_the_end(folder: Path, again: str) -> str:
    """Where a signal ends the command before the training begins, or when it is over."""
    if not _is_first():
        return ""
    saved = sorted(folder.glob("checkpoints/checkpoint-*.safetensors"))
    if not saved:
        return f"stopped before the first checkpoint; nothing is lost. Begin again with: {again.removesuffix(RESUME)}"
    step = int(saved[-1].stem.partition("-")[2])
    return f"stopped; the checkpoint of step {step} is whole. Go on with: {again}"


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _run(recipe: Recipe, folder: Path, *, resume: bool, quiet: bool, again: str, trust: bool = False) -> None:
    """Train, and print the result in the first process."""
    from pcshrink.train.interrupt import Interrupted
    from pcshrink.train.run import train as run
    from pcshrink.train.together import PeerError

    try:
        loggers = live_report(folder, recipe.output.report)
        result = run(recipe, folder, resume=resume, quiet=quiet, trust=trust, loggers=loggers)
    except Interrupted as stop:
        if _is_first():
            sys.stderr.write(f"{stop}. Go on with: {again}\n")
        raise typer.Exit(stop.code) from None
    except PeerError as error:
        sys.stderr.write(f"pcshrink: {error}. Go on with: {again}\n")
        sys.stderr.flush()
        os._exit(1)  # to leave in good order, torch would wait for those who are gone
    if not _is_first():
        return
    typer.echo("")
    typer.echo(result.table())
    if result.budget:
        typer.echo("\n" + result.budget_line())
    files = [Path(path).name for path in result.files.values()] + last_report(folder)
    typer.echo(f"\nfiles in {folder}: " + ", ".join(sorted(files)))
    typer.echo(f"{result.seconds:.0f} s")
    if result.missed:
        raise typer.Exit(MISSED)
