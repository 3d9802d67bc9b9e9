"""The last sections: error by class, and where the figures came from."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from pcshrink.artifact.store import sha256
from pcshrink.report.bars import Bar, bars
from pcshrink.report.draw import colour
from pcshrink.report.parts import Data, Figure, Section, Table
from pcshrink.report.runs import Run

MOST_CLASSES = 25


def classes(runs: Sequence[Run]) -> Section:
    """Error on the images of every class, dense and compact."""
    section = Section(key="classes", title="Error by class")
    rows: list[tuple[str, str, float | None, float | None]] = []
    for run in runs:
        after = run.compact.get("error_by_class")
        if not after:
            section.missing.append(f"{run.name}: the error was not counted class by class.")
            continue
        before = run.dense.get("error_by_class") or [None] * len(after)
        rows += zip([run.name] * len(after), _class_names(run, len(after)), before, after, strict=True)
    if not rows:
        return section
    longest = max(value or 0.0 for row in rows for value in row[2:] if not isinstance(value, str))
    charts = [
        (run.name, _chart(run.name, [row for row in rows if row[0] == run.name], longest, colour(place)))
        for place, run in enumerate(runs)
        if any(row[0] == run.name for row in rows)
    ]
    many = len(rows) / len(charts) > MOST_CLASSES
    section.figures.append(
        Figure(
            key="class-error", title="Error on the images of each class", charts=charts,
            caption="Light: dense. Solid: compact. Per cent of the images of the class."
            + (f" The {MOST_CLASSES} classes that changed the most." if many else ""),
            data=Data(columns=("run", "class", "dense_error", "compact_error"), rows=lambda: rows),
        )
    )  # fmt: skip
    return section


def _class_names(run: Run, count: int) -> list[str]:
    recorded = run.history.facts.get("classes", []) if run.history is not None else []
    return [str(name) for name in recorded] if len(recorded) == count else [str(n) for n in range(count)]


def _chart(name: str, rows: Sequence[tuple[str, str, float | None, float | None]], longest: float, kind: str) -> str:
    if len(rows) > MOST_CLASSES:
        rows = sorted(rows, key=lambda row: -abs((row[3] or 0.0) - (row[2] or 0.0)))[:MOST_CLASSES]
    lines = [
        Bar(name=called, before=before or 0.0, after=after or 0.0, note=f"{_said(before)} → {_said(after)}")
        for _, called, before, after in rows
    ]
    alt = f"Error by class in per cent, dense and compact, {name}: " + "; ".join(f"{b.name} {b.note}" for b in lines)
    return bars(f"{alt}.", lines, longest, kind, ("class", "error, %"))


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def origin(runs: Sequence[Run]) -> Section:
    """Recipe, seed, versions, hashes, the command."""
    section = Section(key="origin", title="Where it came from")
    for run in runs:
        section.tables.append(
            Table(heading=run.name if len(runs) > 1 else "", columns=("what", "value"), rows=_facts(run))
        )
        command = _command(run)
        if command:
            section.code.append((f"{run.name}: the command", command))
        else:
            section.missing.append(f"{run.name}: the command was not recorded (it was started from Python, or before).")
        text = yaml.safe_dump(run.recipe, sort_keys=False, width=100)
        section.code.append((f"{run.name}: the recipe", text.rstrip()))
    return section


def _command(run: Run) -> str:
    recorded = run.history.facts.get("command") if run.history is not None else None
    return str(recorded or run.result.get("command") or "")


def _facts(run: Run) -> list[list[str]]:
    facts = run.history.facts if run.history is not None else {}
    versions = (run.saved.versions if run.saved is not None else None) or facts.get("versions", {})
    rows = [
        ["network", run.model], ["data", run.data], ["method", run.method],
        ["seed", str(run.recipe.get("seed", "–"))],
        ["epochs", ", ".join(f"{name} {end - start}" for name, start, end in run.phases())],
        ["started", str(facts.get("started", ""))], ["machine", str(facts.get("machine", ""))],
        ["trained in", str(facts.get("products", ""))],
        ["time", f"{run.result['seconds']:,.0f} s" if run.result.get("seconds") else ""],
        ["versions", ", ".join(f"{name} {number}" for name, number in versions.items())],
        ["recipe, sha256", sha256((run.folder / "recipe.yaml").read_bytes())],
        ["weights, sha256", run.saved.weights_sha256 if run.saved is not None else ""],
    ]  # fmt: skip
    return [row for row in rows if row[1]]
