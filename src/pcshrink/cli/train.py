"""The commands that train: ``train``, ``demo`` and ``recipes``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcshrink.cli.options import examples
from pcshrink.cli.report_page import last_report, live_report

if TYPE_CHECKING:
    from pcshrink.train.recipe.schema import Recipe

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only print the result.")]


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
    app.command("recipes", epilog=examples("pcshrink recipes digits > my.yaml"))(recipes)


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


def train(
    recipe: RecipeName,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for all files of the run (default: runs/ and the recipe's name)."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")] = False,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Processes, one for each device.")] = 1,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Run a data set or runtime of your own (package.module:callable) in the recipe."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train, shrink and compact a network as a recipe says."""
    from pcshrink.train.recipe.read import load_recipe

    checked = load_recipe(recipe, settings or ())
    folder = out or Path("runs") / Path(recipe).stem
    if devices > 1 and "WORLD_SIZE" not in os.environ:
        _launch(devices)
    again = _command_to_go_on(recipe, settings or [], folder, devices, trust=trust)
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

    from pcshrink.train.recipe.read import load_recipe

    folder = out or Path(tempfile.mkdtemp(prefix="pcshrink-demo-"))
    typer.echo("A small residual network learns 1,437 handwritten digits, then loses 60 % of its multiply-adds.")
    again = _command_to_go_on("digits", [], folder, 1)
    _run(load_recipe("digits"), folder, resume=False, quiet=quiet, again=again)
    typer.echo(f"\nTry it: pcshrink eval {folder} --data digits")


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this recipe's YAML (default: list all).", autocompletion=_recipe_names),
    ] = None,
) -> None:
    """List the built-in recipes, or show one."""
    from pcshrink.common.tables import text_table
    from pcshrink.train.recipe.read import load_recipe, recipe_names, recipe_text

    if name is not None:
        typer.echo(recipe_text(name).rstrip())
        return
    typer.echo(text_table([[each, load_recipe(each).description] for each in recipe_names()], "<"))


def _command_to_go_on(recipe: str, settings: list[str], folder: Path, devices: int, *, trust: bool = False) -> str:
    import shlex

    words = ["pcshrink", "train", recipe, *(w for s in settings for w in ("--set", s)), "--out", str(folder)]
    words += ["--devices", str(devices)] if devices > 1 else []
    words += ["--trust"] if trust else []
    return shlex.join([*words, "--resume"])


def _run(recipe: Recipe, folder: Path, *, resume: bool, quiet: bool, again: str, trust: bool = False) -> None:
    """Train, and print the result in the first process."""
    from pcshrink.train.interrupt import Interrupted
    from pcshrink.train.run import train as run

    first = os.environ.get("RANK", "0") == "0"
    try:
        loggers = live_report(folder, recipe.output.report)
        result = run(recipe, folder, resume=resume, quiet=quiet, trust=trust, loggers=loggers)
    except Interrupted as stop:
        if first:
            sys.stderr.write(f"{stop}. Go on with: {again}\n")
        raise typer.Exit(stop.code) from None
    if not first:
        return
    typer.echo("")
    typer.echo(result.table())
    if result.budget:
        typer.echo("\n" + result.budget_line())
    files = [Path(path).name for path in result.files.values()] + last_report(folder)
    typer.echo(f"\nfiles in {folder}: " + ", ".join(sorted(files)))
    typer.echo(f"{result.seconds:.0f} s")


def _end_with_parent() -> None:
    """In the child: be told to stop when the parent dies, even of a signal that it cannot pass on."""
    if sys.platform == "linux":
        import ctypes
        import signal

        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)


def _launch(devices: int) -> None:
    """Run this very command in several processes, and end with their exit code, or as a signal says."""
    import signal
    import subprocess

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}"]
    environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
    process = subprocess.Popen(
        [*command, "-m", "pcshrink", *sys.argv[1:]], env=environment, preexec_fn=_end_with_parent
    )
    caught = []

    def pass_on(signum: int, _: Any) -> None:
        caught.append(signum)
        if signum == signal.SIGTERM:  # an interrupt from the keyboard reaches all processes by itself
            process.send_signal(signum)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, pass_on)
    code = process.wait()
    raise typer.Exit(128 + caught[0] if caught and code else code)
