"""Tables of plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain, repeat, zip_longest

GAP = "  "


def text_table(
    rows: Sequence[Sequence[str]],
    align: str = "<>",
    *,
    head: Sequence[str] = (),
    total: Sequence[str] = (),
    indent: str = "",
) -> str:
    """Rows as aligned columns, with a rule below the head and one above the total.

    Args:
        rows: Cells, the same number in each row.
        align: For each column "<" (left), ">" (right) or "^" (middle); the last one holds for all columns after it.
        head: Names of the columns; none by default.
        total: A last row of its own; none by default.
        indent: What stands before each line.

    Example:
        >>> print(text_table([["conv1", "432"], ["fc", "65,000"]], head=["layer", "params"]))
        layer  params
        -----  ------
        conv1     432
        fc     65,000
    """
    everything = [row for row in (head, *rows, total) if row]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    rule = ["-" * width for width in widths]
    top, bottom = [head, rule] if head else [], [rule, total] if total else []
    return "\n".join(indent + _line(cells, align, widths) for cells in (*top, *rows, *bottom))


def wrapped(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[list[str]]:
    """Rows whose cells are broken into lines of these widths at most: as many rows of one line each.

    Example:
        >>> wrapped([["fbs", "output channel"], ["mil", "position"]], [3, 7])
        [['fbs', 'output'], ['', 'channel'], ['mil', 'position']]
    """
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, width, break_long_words=False) for cell, width in zip(row, widths, strict=True)]
        lines += [list(line) for line in zip_longest(*cells, fillvalue="")]
    return lines


def _line(cells: Sequence[str], align: str, widths: Sequence[int]) -> str:
    sides = chain(align, repeat(align[-1]))
    return GAP.join(f"{cell:{side}{width}}" for cell, side, width in zip(cells, sides, widths, strict=False)).rstrip()
