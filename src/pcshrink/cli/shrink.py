"""The command from a pretrained network and a folder of images to a smaller one: ``shrink``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcshrink.cli.options import Threads, examples
from pcshrink.cli.report_page import last_report, write_curve_page
from pcshrink.cli.train import MISSED, Quiet, Settings, TrustCode
from pcshrink.errors import CheckpointError

if TYPE_CHECKING:
    from pcshrink.pretrained.request import Request
    from pcshrink.pretrained.run import Shrunk


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command(
        "shrink",
        epilog=examples(
            "pcshrink shrink timm:resnet50 --images photos --budget latency=0.5 --out runs/faster",
            "pcshrink shrink torchvision:mobilenet_v2 --weights mine.pth --images photos --budget max-drop=1.0 "
            "--hours 8 --out runs/smallest",
            "pcshrink shrink timm:resnet50 --images photos --budget madds=0.5 --out runs/half --dry-run",
        ),
    )(shrink)


def shrink(
    model: Annotated[
        str,
        typer.Argument(help="A timm, torchvision, transformers or pcshrink name, or package.module:callable."),
    ],
    images: Annotated[
        Path,
        typer.Option("--images", help="Folder of images: loose, in class folders, or with train and val folders."),
    ],
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="latency=0.5, madds=0.5, params=0.5 (shares of the dense network), or max-drop=1.0 (points).",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for everything that is written.")],
    weights: Annotated[
        Path | None,
        typer.Option("--weights", help="A checkpoint, safetensors or torch (default: the library's own weights)."),
    ] = None,
    hours: Annotated[float | None, typer.Option("--hours", help="How long the training may take.")] = None,
    labels: Annotated[
        bool | None,
        typer.Option(
            "--labels/--no-labels", help="Whether folder names are labels (default: if images lie in folders)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the training and of what is held out.")] = 0,
    threads: Threads = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done and how long it takes.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    settings: Settings = None,
    trust: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Make a pretrained network faster with a folder of images.

    Images without labels do: the network itself is the teacher, and agreement with it is what counts. Ends with code 3
    if the network costs more than its budget.
    """
    from pcshrink.pretrained.request import RECIPE, Goal, Request
    from pcshrink.train.interrupt import Interrupted

    request = Request(
        model=model, images=images, out=out, goal=Goal.parse(budget), weights=weights, labels=labels, hours=hours,
        seed=seed, threads=threads, settings=tuple(settings or ()), trust=trust,
    )  # fmt: skip
    if resume and not any(out.rglob(RECIPE)):
        message = f"there is nothing in {out} to go on with; leave --resume out to start"
        raise CheckpointError(message)
    try:
        (_smallest if request.goal.kind == "max-drop" else _one)(request, dry_run=dry_run, resume=resume, quiet=quiet)
    except Interrupted as stop:
        sys.stderr.write(f"{stop}. Go on with the same command and --resume\n")
        raise typer.Exit(stop.code) from None


def _one(request: Request, *, dry_run: bool, resume: bool, quiet: bool) -> None:
    from pcshrink.pretrained.prepare import prepare
    from pcshrink.pretrained.run import run_one

    prepared = prepare(request, request.goal)
    if not quiet:
        typer.echo(prepared.text())
    if dry_run:
        return
    shrunk = run_one(prepared, request.out, resume=resume, trust=request.trust, quiet=quiet)
    typer.echo("\n" + shrunk.table() + "\n\n" + shrunk.budget_line(request.goal))
    names = ["shrink.yaml", "model", "model.onnx", "held-out.txt", *last_report(request.out)]
    typer.echo(f"\nfiles in {request.out}: {', '.join(names)}")
    if shrunk.missed(request.goal):
        raise typer.Exit(MISSED)


def _smallest(request: Request, *, dry_run: bool, resume: bool, quiet: bool) -> None:
    from pcshrink.pretrained.prepare import duration, prepare
    from pcshrink.pretrained.run import run_one
    from pcshrink.pretrained.search import HIGHEST, RUNS, search

    first = prepare(request, request.goal.at(HIGHEST), RUNS)
    if not quiet:
        typer.echo(first.text())
        typer.echo(f"{RUNS} such runs, about {duration(RUNS * first.schedule.seconds)} in all")
    if dry_run:
        return

    def run(share: float, folder: Path) -> Shrunk:
        prepared = prepare(request, request.goal.at(share), RUNS)
        return run_one(prepared, folder, resume=resume, trust=request.trust, quiet=quiet)

    curve = search(request.goal.amount, request.out, run)
    typer.echo("\n" + curve.table() + "\n\n" + curve.conclusion())
    page = write_curve_page([point.shrunk.folder for point in curve.points], request.out)
    typer.echo(f"\nfiles in {request.out}: {', '.join(['tradeoff.json', *page])}")
