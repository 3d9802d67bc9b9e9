"""Text tables line up."""

from __future__ import annotations

import pytest

from pcshrink.common.tables import text_table


def test_columns_line_up() -> None:
    rows = [["conv1", "conv", "432"], ["a.long.name", "", "1,000,000"]]
    assert text_table(rows, "<<>", head=["layer", "kind", "params"], total=["total", "", "1,000,432"]) == (
        "layer        kind     params\n"
        "-----------  ----  ---------\n"
        "conv1        conv        432\n"
        "a.long.name        1,000,000\n"
        "-----------  ----  ---------\n"
        "total              1,000,432"
    )


def test_without_head_and_indented() -> None:
    assert text_table([["a", "why"], ["bb", ""]], "<", indent="  ") == "  a   why\n  bb"


def test_nothing() -> None:
    assert text_table([]) == ""
    assert text_table([], head=["a", "b"]) == "a  b\n-  -"


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        text_table([["a"], ["b", "c"]])
