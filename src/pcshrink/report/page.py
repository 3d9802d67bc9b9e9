"""One offline HTML file about one run or several: sections in a fixed order, rendered by a template."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pcshrink.common.files import write_text
from pcshrink.common.install import install_hint
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.report.compare import listing, open_runs
from pcshrink.report.curves import step_loss, training
from pcshrink.report.draw import standalone
from pcshrink.report.layers import stays, times
from pcshrink.report.origin import classes, origin
from pcshrink.report.parts import Figure, Section
from pcshrink.report.runs import Run
from pcshrink.report.salience import salience_figure
from pcshrink.report.tradeoff import latency_tradeoff, tradeoff
from pcshrink.report.verdict import proof, verdict
from pcshrink.report.widths import group_widths, madds_by_layer, width_over_time, width_ratio_by_layer

NO_STEPS = "Losses of single steps were not recorded."
NO_SCORES = "The scores were not recorded: the run is older than the record, or has no gates yet."
FOOTER = "Made by pcshrink from the files of the run. This page needs no network and runs no script."


def sections(runs: Sequence[Run]) -> list[Section]:
    """Everything there is to say, in order."""
    return [
        verdict(runs),
        proof(runs),
        _drawn("tradeoff", "Trade-off", [tradeoff(runs), latency_tradeoff(runs)], _no_points(runs)),
        _drawn(
            "widths", "Widths", [group_widths(runs), width_ratio_by_layer(runs), madds_by_layer(runs)],
            _no_widths(runs) + _no_layers(runs) or ["No group has been cut, or the network is not known here."],
        ),
        _drawn("training", "Training", [training(runs), step_loss(runs)], [NO_STEPS]),
        _drawn(
            "salience", "Scores over time", [width_over_time(runs), salience_figure(runs)],
            _no_traces(runs) or [NO_SCORES],
        ),
        times(runs),
        stays(runs),
        classes(runs),
        origin(runs),
    ]  # fmt: skip


def _drawn(key: str, title: str, figures: Sequence[Figure | None], missing: Sequence[str]) -> Section:
    drawn = [figure for figure in figures if figure is not None]
    return Section(key=key, title=title, figures=drawn, missing=[] if len(drawn) == len(figures) else list(missing))


def _no_points(runs: Sequence[Run]) -> list[str]:
    if not any(run.result for run in runs):
        return ["No run has finished yet, so there is no point to draw."]
    return ["No latency was measured after the training (output.latency), so there is no figure of it."]


def _no_widths(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.name} has no widths: its gates choose for each input, kernels stay whole and nothing is cut."
        for run in runs
        if not run.cuts
    ]


def _no_layers(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.name}: what is left of each layer is told by its saved network, which is not there."
        for run in runs
        if not run.layers_known
    ]


def _no_traces(runs: Sequence[Run]) -> list[str]:
    scored = [
        f"{run.name} has no traces of single channels: the scores of method {run.method} do not fall to zero."
        for run in runs
        if run.cuts and run.method_class is not None and not run.score_name
    ]
    return _no_widths(runs) + scored


def render(runs: Sequence[Run], *, refresh: int = 0) -> str:
    """The page as text.

    Args:
        runs: What it is about.
        refresh: Let a browser load it again after so many seconds; 0 for a page that does not change.
    """
    title = listing(run.name for run in runs)
    first = runs[0]
    about = f"{listing(dict.fromkeys(run.model for run in runs))} on {first.data}"
    return fill("report.html", title=title, about=about, sections=sections(runs), refresh=refresh, footer=FOOTER)


def fill(template: str, **values: object) -> str:
    """A template of this package with values put in; everything but pictures is escaped.

    Raises:
        ConfigError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as error:
        message = f"pages need jinja2; install it with {install_hint('jinja2')}"
        raise ConfigError(message) from error
    environment = Environment(
        loader=PackageLoader("pcshrink.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["ticks"] = _ticks
    return environment.get_template(template).render(style=_style(), **values)


def _ticks(sentence: str) -> Any:
    """`code` in a sentence as such."""
    from markupsafe import Markup, escape

    parts = [
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(sentence.replace(" %", "\u00a0%").split("`"))
    ]
    return Markup("").join(parts)


def _style() -> str:
    folder = resources.files("pcshrink.report").joinpath("templates")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in ("figures.css", "page.css"))


def write_report(
    folders: Sequence[str | Path], out: str | Path, *, csv_folder: str | Path | None = None,
    svg_folder: str | Path | None = None, only: Sequence[str] = (), refresh: int = 0,
) -> list[Run]:  # fmt: skip
    """Write the report of one run or several.

    Args:
        folders: Runs, finished or not.
        out: The HTML file.
        csv_folder: Where the numbers behind each figure go.
        svg_folder: Where each chart goes as a file of its own.
        only: The figures that go there; all by default.
        refresh: As for ``render``.

    Returns:
        The runs.

    Raises:
        CheckpointError: A folder is no run or has no epoch yet, or a file cannot be written.
        ConfigError: The runs do not fit together, or have no such figure.
    """
    runs = open_runs(folders)
    figures = [figure for section in sections(runs) for figure in section.figures]
    unknown = set(only) - {figure.key for figure in figures}
    if unknown:
        known = ", ".join(figure.key for figure in figures)
        message = f"there is no figure {', '.join(sorted(unknown))} for these runs; there are {known}"
        raise ConfigError(message)
    figures = [figure for figure in figures if not only or figure.key in only]
    write_page(Path(out), render(runs, refresh=refresh))
    if csv_folder is not None:
        for figure in figures:
            write_page(Path(csv_folder) / f"{figure.key}.csv", _csv(figure))
    if svg_folder is not None:
        for name, text in _pictures(figures):
            write_page(Path(svg_folder) / f"{name}.svg", text)
    return runs


def _csv(figure: Figure) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(figure.data.columns)
    writer.writerows(figure.data.rows())
    return text.getvalue()


def _pictures(figures: Iterable[Figure]) -> Iterable[tuple[str, str]]:
    for figure in figures:
        for place, (_, picture) in enumerate(figure.charts):
            yield figure.key if len(figure.charts) == 1 else f"{figure.key}-{place + 1}", standalone(picture)


def write_page(path: Path, text: str) -> None:
    """Write a file, or say in one line why it cannot be.

    Raises:
        CheckpointError: It cannot.
    """
    try:
        write_text(path, text)
    except (OSError, CheckpointError) as error:
        cause = error.__cause__ if isinstance(error, CheckpointError) else error
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(error)
        if isinstance(cause, (FileExistsError, NotADirectoryError)):
            reason = "its folder is a file"
        if path.is_dir():
            reason = "it is a folder"
        message = f"cannot write {path}: {reason}; choose another place with --out"
        raise CheckpointError(message) from error
