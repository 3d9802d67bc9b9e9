"""The commands that tell what a network is and does: ``eval`` and ``inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pcshrink.cli.options import AsJson, SavedModel, Trust, examples, parse_shape
from pcshrink.cli.report_page import write_inspection
from pcshrink.data.registry import DATASETS


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command(
        "eval",
        epilog=examples(
            "pcshrink eval runs/digits",
            "pcshrink eval runs/digits/model --data digits",
            "pcshrink eval runs/mine --data folder --root other/images",
        ),
    )(evaluate)
    app.command(
        "inspect",
        epilog=examples(
            "pcshrink inspect resnet20",
            "pcshrink inspect timm:resnet50 --ratio 0.3 --align 8",
            "pcshrink inspect my_package.nets:make --input 3,64,64 --json",
        ),
    )(inspect)


def evaluate(
    folder: SavedModel,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help=f"{DATASETS} (default: what it was trained on).",
            autocompletion=lambda: list(DATASETS),
        ),
    ] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Folder of the data (default: as trained).")] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes",
            metavar="FILE",
            help="Which class folder belongs to which output: names in their order, or imagenet_class_index.json.",
        ),
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a saved network.

    Images become its input as they did when it was trained.
    """
    from pcshrink.train.again import evaluate_saved

    score = evaluate_saved(folder, data, root, classes=classes, trust=trust)
    if as_json:
        typer.echo(json.dumps(score))
    else:
        top5 = f", top-5 error {score['error_top5']:.2f} %" if "error_top5" in score else ""
        error = f"error {score['error']:.2f} % (accuracy {score['accuracy']:.2f} %){top5}"
        typer.echo(f"{error} on {score['images']} images of {score['data']}")
        if "note" in score:
            typer.echo(f"note: {score['note']}", err=True)


def inspect(
    model: Annotated[
        str,
        typer.Argument(help="A timm, torchvision, transformers or pcshrink name, or package.module:callable."),
    ],
    shape: Annotated[
        str | None,
        typer.Option("--input", metavar="SIZES", help="One input sample, for example 3,224,224 (default: a guess)."),
    ] = None,
    ratio: Annotated[float, typer.Option("--ratio", help="Share of the channels that leaves.")] = 0.5,
    align: Annotated[int, typer.Option("--align", help="Kept widths are multiples of this.")] = 1,
    as_json: AsJson = False,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also draw it as a page in this file.")
    ] = None,
) -> None:
    """Show what of a model can shrink, and why the rest stays.

    Also what would be left of its costs. Trains nothing.
    """
    from pcshrink.report.inspect import inspect_model, inspection_text

    inspection = inspect_model(model, parse_shape(shape) if shape else None, ratio, align=align)
    if page is not None:
        write_inspection(inspection, page)
    typer.echo(json.dumps(inspection, indent=1) if as_json else inspection_text(inspection))
