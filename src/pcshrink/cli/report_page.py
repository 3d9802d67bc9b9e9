"""The commands that make pages: ``report``, and ``inspect --html``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from pcshrink.runtime.registry import DEFAULT_RUNTIME


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command("report")(report)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, finished or going on.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file (default: report.html in the first run's folder).")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write the numbers behind each figure here.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Also write each chart as a file here.")] = None,
    figures: Annotated[
        list[str] | None, typer.Option("--figure", help="Only this figure for --csv and --svg; may be repeated.")
    ] = None,
    timed: Annotated[bool, typer.Option("--time", help="Time the layers of finished runs first.")] = False,
    runtime: Annotated[
        str, typer.Option("--runtime", help="For --time: eager, onnxruntime or openvino.")
    ] = DEFAULT_RUNTIME,
    live: Annotated[
        int, typer.Option("--live", min=0, help="Seconds after which it is written again, until all runs are done.")
    ] = 0,
) -> None:
    """Write an offline page about one or several runs."""
    from pcshrink.report.page import write_report

    target = out or runs[0] / "report.html"
    files: dict[str, Any] = {"csv_folder": csv, "svg_folder": svg, "only": figures or ()}
    if timed:
        _time(runs, runtime)
    while True:
        shown = write_report(runs, target, refresh=live, **files)
        going = [run.name for run in shown if not run.result]
        if not live or not going:
            break
        time.sleep(live)
    if live:
        write_report(runs, target, **files)  # the last one does not load itself again
    typer.echo(str(target))


def _time(runs: list[Path], runtime: str) -> None:
    from pcshrink.report.timing import time_layers

    for folder in runs:
        typer.echo(f"timing the layers of {folder} ({runtime}) ...", err=True)
        time_layers(folder, runtime)


def live_report(folder: Path, every: int) -> list[Any]:
    """The logger that keeps a run's report up to date, if it is asked for."""
    if not every:
        return []
    from pcshrink.report.live import ReportLogger

    return [ReportLogger(folder, every)]


def last_report(folder: Path) -> list[str]:
    """Write the report of a finished run; its name, if that worked."""
    from pcshrink.report.live import final_report

    written = final_report(folder)
    return [written.name] if written is not None else []


def write_curve_page(runs: list[Path], folder: Path) -> list[str]:
    """Write a page about several finished runs side by side; its name, if that worked."""
    from pcshrink.report.live import final_report

    written = final_report(folder, runs)
    return [written.name] if written is not None else []


def write_inspection(inspection: dict[str, Any], path: Path) -> None:
    """Write what ``inspect_model`` found as a page.

    Raises:
        CheckpointError: The file cannot be written.
    """
    from pcshrink.report.inspect_page import inspection_page
    from pcshrink.report.page import write_page

    write_page(path, inspection_page(inspection))
