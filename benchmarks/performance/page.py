"""docs/performance.md: the newest figures of every part beside their goals, and what bounds those that are missed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.performance.rows import HEAD, Row, kept

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
TITLES = {
    "step": "A training step",
    "profile": "Where a gated step spends its time",
    "compiled": "A compiled training step",
    "compact": "A step of a cut network",
    "run": "A whole run",
    "memory": "Memory",
    "start": "Start",
    "surgery": "Attaching and cutting",
    "deployment": "Deployment",
    "growth": "Growth",
}
NOTES = Path(__file__).with_name("notes")


def write_page() -> None:
    """Put the page together."""
    figures = kept()
    parts = [(NOTES / "head.md").read_text()]
    for part, title in TITLES.items():
        note = NOTES / f"{part}.md"
        table = [_table(figures[part])] if part in figures else ["Not measured yet."]
        parts.append(
            "\n\n".join([f"## {title}", *table, *([note.read_text().strip()] if note.is_file() else [])]) + "\n"
        )
    PAGE.write_text("\n".join(parts))


def _table(rows: list[Row]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *[row.cells() for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
