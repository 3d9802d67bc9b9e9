"""What a page is made of: sections with sentences, tables and figures. Plain data, ready for the template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        columns: The head; a column whose name ends in ``>`` holds numbers and is set to the right.
        rows: Texts.
        heading: Above it.
        folded: Shown only when asked for.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    heading: str = ""
    folded: bool = False

    @property
    def head(self) -> list[tuple[str, bool]]:
        """Name of each column, and whether it holds numbers."""
        return [(name.removesuffix(">"), name.endswith(">")) for name in self.columns]


@dataclass(frozen=True, kw_only=True)
class Data:
    """The numbers behind a figure, for a CSV file; made only when they are asked for."""

    columns: Sequence[str]
    rows: Callable[[], Iterable[Sequence[object]]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: some charts with the same meaning.

    Attributes:
        key: Short name, for files and links.
        title: What it shows.
        caption: How to read it.
        charts: Heading and SVG text of each.
        data: The numbers behind it.
        side: A table to put beside it.
    """

    key: str
    title: str
    caption: str
    charts: Sequence[tuple[str, str]]
    data: Data
    side: Table | None = None


@dataclass(kw_only=True)
class Section:
    """A part of the page.

    Attributes:
        key: For links.
        title: Its heading.
        text: Sentences.
        notes: More of them, below the tables.
        tables: Tables.
        figures: Figures.
        code: Heading and text of pieces to copy.
        missing: Why there is nothing, or less than there could be; empty where all is there.
    """

    key: str
    title: str
    text: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    code: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
