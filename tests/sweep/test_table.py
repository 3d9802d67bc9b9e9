"""From results to rows, and rows as text, CSV, JSON and a figure."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pcshrink.sweep.plot import Point, tradeoff_svg
from pcshrink.sweep.runs import Outcome, read_result
from pcshrink.sweep.table import MEASURED, Column, Table, dense_row, measured
from testing.training import tiny


def finished(error: float, madds: int = 400, latency: float | None = None) -> Outcome:
    dense = {"error": 5.0, "madds": 1000, "params": 90, "mem_access": 70, "paper_madds": 1100, "paper_mem_access": 80}
    small = {"error": error, "madds": madds, "params": 40, "mem_access": 30, "paper_madds": 550, "paper_mem_access": 35}
    return Outcome(Path("run"), {"dense": dense, "compact": small}, latency_share=latency)


def test_mean_and_spread_over_seeds() -> None:
    row = measured([finished(2.0, latency=0.5), finished(4.0, latency=0.25)], tiny())
    assert (row["error"], row["spread"], row["seeds"]) == (3.0, pytest.approx(2**0.5), "2")
    assert (row["madds"], row["madds_share"], row["params"], row["mem_access"]) == (400, 0.4, 40, 30)
    assert row["latency_share"] == pytest.approx(0.375)


def test_the_papers_convention_counts_the_papers_way() -> None:
    recipe = tiny(shrink={"budget": {"madds": 0.5, "convention": "paper"}})
    row, dense = measured([finished(2.0)], recipe), dense_row([finished(2.0)], recipe)
    assert (row["madds"], row["madds_share"], row["mem_access"]) == (550, 0.5, 35)
    assert dense is not None
    assert (dense["madds"], dense["mem_access"], dense["error"]) == (1100, 80, 5.0)


def test_one_seed_has_no_spread_and_failed_ones_are_counted_with_their_reasons() -> None:
    row = measured([finished(2.0), Outcome(Path("b"), None, "no"), Outcome(None, None, "no")], tiny())
    assert (row["error"], row["spread"], row["seeds"], row["reason"]) == (2.0, None, "1/3", "no")
    nothing = measured([Outcome(None, None, "why")], tiny())
    assert (nothing["error"], nothing["madds"], nothing["madds_share"]) == (None, None, None)
    assert dense_row([Outcome(None, None, "why")], tiny()) is None


def test_a_missed_budget_is_said_and_is_no_failed_run() -> None:
    budget = {"metric": "madds", "convention": "layers", "limit": 400.0, "share": 0.4}
    outcomes = [finished(2.0) for _ in range(3)]
    for outcome, reached in zip(outcomes, (400, 420, 440), strict=True):
        assert outcome.result is not None
        outcome.result["budget"] = budget | {"reached": reached}
    row = measured(outcomes, tiny())
    assert row["reason"] == "budget missed by up to 10.0 % in 2 of 3 runs"
    assert Table("sample", {}, MEASURED, [row]).failed == 0
    assert measured(outcomes[1:2], tiny())["reason"] == "budget missed by 5.0 %"
    assert measured(outcomes[:1], tiny())["reason"] == ""


def test_text_leaves_out_columns_without_values_and_all_forms_agree(tmp_path: Path) -> None:
    columns = (Column("method", "method", side="<"), *MEASURED, Column("reason", "why not", side="<"))
    rows = [{"method": "a"} | measured([finished(2.0)], tiny()), {"method": "b,c", "reason": 'it "can\'t"'}]
    table = Table("sample", {"about": "all"}, columns, rows)
    text = table.text()
    assert "latency" not in text
    assert text.splitlines()[-1].split() == ["b,c", *"------", "it", '"can\'t"']
    assert table.failed == 1
    written = table.write(tmp_path, "<svg/>")
    assert [path.name for path in written] == ["sample.txt", "sample.csv", "sample.json", "sample.svg"]
    listed = list(csv.DictReader(io.StringIO(written[1].read_text())))
    plain = json.loads(written[2].read_text())["rows"]
    assert [row["method"] for row in listed] == [row["method"] for row in plain] == ["a", "b,c"]
    assert float(listed[0]["madds_share"]) == plain[0]["madds_share"] == 0.4
    assert plain[1]["error"] is None
    assert listed[1]["error"] == ""


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"compact": {}}'])
def test_a_result_that_is_none_or_damaged_is_not_finished(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    assert read_result(tmp_path) is None


def test_the_figure_shows_every_point_inside_and_says_it_in_words() -> None:
    dots = [Point(f"method {n}", 20.0 + n, 5.0 + n / 10, spread=0.2, label="<&>") for n in range(24)]
    root = ElementTree.fromstring(tradeoff_svg("title & more", dots, "error, %"))
    circles = [mark for mark in root.iter() if mark.tag.endswith("circle")]
    squares = [mark for mark in root.iter() if mark.tag.endswith("rect") and mark.get("class") == "mark"]
    assert len(circles) + len(squares) == 2 * len(dots)  # each in the plot and in the legend
    assert all(0 < float(mark.attrib["cx"]) < 720 and 0 < float(mark.attrib["cy"]) < 600 for mark in circles)
    words = root.findtext("{http://www.w3.org/2000/svg}desc") or ""
    assert "method 23 <&>: 7.30 at 43.0 % of the multiply-adds" in words


@pytest.mark.parametrize("dots", [[], [Point("one", 100.0, 0.0)]])
def test_a_figure_of_nothing_or_one_point(dots: list[Point]) -> None:
    text = tradeoff_svg("title", dots, "error")
    ElementTree.fromstring(text)
    assert ("no run is finished" in text) == (not dots)
