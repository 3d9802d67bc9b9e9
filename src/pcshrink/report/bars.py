"""Rows of bars: a name, what was, what is left, and a note."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pcshrink.report.draw import LETTER, WIDTH, box, svg, text

HEIGHT = 24.0
LONGEST_NAME = 24


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One row.

    Attributes:
        name: On the left.
        before: Length of the light bar behind.
        after: Length of the bar in front.
        note: On the right.
    """

    name: str
    before: float
    after: float
    note: str


def bars(alt: str, rows: Sequence[Bar], longest: float, kind: str, heads: tuple[str, str] = ("", "")) -> str:
    """Bars under one another, all to one scale.

    Args:
        alt: What it shows, in words.
        rows: The rows.
        longest: What the whole length stands for; the same for pictures that are to be compared.
        kind: Colour class.
        heads: Above the names and above the notes.
    """
    left = LETTER * max([len(short(row.name)) for row in rows] + [len(heads[0])]) + 10
    right = WIDTH - LETTER * max([len(row.note) for row in rows] + [len(heads[1])]) - 10
    scale = (right - left) / (longest or 1.0)
    top = HEIGHT if any(heads) else 0.0
    body = [text(0, 16, heads[0], "soft"), text(WIDTH, 16, heads[1], "soft", "end")] if top else []
    for place, row in enumerate(rows):
        y = top + HEIGHT * place
        told = f"{row.name}: {row.note}"
        body += [
            text(0, y + 17, short(row.name)),
            box(left, y + 4, row.before * scale, HEIGHT - 8, "before", told),
            box(left, y + 7, row.after * scale, HEIGHT - 14, f"fill {kind}", told),
            text(WIDTH, y + 17, row.note, "soft", "end"),
        ]
    return svg(alt, top + HEIGHT * len(rows) + 4, body)


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """A name that fits, without its middle if it must be."""
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[: longest - 1 - half]}…{name[-half:]}"
