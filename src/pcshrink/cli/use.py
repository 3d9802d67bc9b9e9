"""The commands that look at and use what was saved: ``info`` and ``predict``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pcshrink.cli.deploy import saved_in
from pcshrink.cli.options import AsJson, Trust, examples


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command("info", epilog=examples("pcshrink info runs/digits", "pcshrink info zoo/resnet20-dense --json"))(info)
    app.command(
        "predict",
        epilog=examples(
            "pcshrink predict runs/mine cat.jpg dog.jpg",
            "pcshrink predict model.onnx photos --top 3 --json",
        ),
    )(predict)


def info(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, finished or not, or a saved model.")],
    as_json: AsJson = False,
) -> None:
    """Show what is in a folder: a saved model or a run."""
    from pcshrink.report.info import describe_folder, info_text

    described = describe_folder(folder)
    typer.echo(json.dumps(described, indent=1) if as_json else info_text(described))


def predict(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A finished run, the folder of a saved model, or an ONNX file of one.")
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Image files, or folders of them.")],
    top: Annotated[int, typer.Option("--top", min=1, help="How many classes to name.")] = 5,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Classify images with a saved model.

    Images become its input as they did when it was trained.
    """
    from pcshrink.data.prediction import predict as classify

    predictions = classify(source if source.suffix == ".onnx" else saved_in(source), images, top=top, trust=trust)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in predictions], indent=1))
        return
    for each in predictions:
        likely = ", ".join(f"{name} {share:.1%}" for name, share in zip(each.names, each.shares, strict=True))
        typer.echo(f"{each.path}: {likely}")
