"""What pictures are drawn with: axes, lines, bins, lanes, intervals."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pcshrink.report.chart import Chart
from pcshrink.report.compare import interval
from pcshrink.report.curves import binned
from pcshrink.report.draw import Axis, nice, nice_log, number
from pcshrink.report.lanes import lane_numbers


@pytest.mark.unit
def test_axes_have_round_marks() -> None:
    assert nice(0, 43) == [0, 10, 20, 30, 40]
    assert nice(0.02, 0.11) == [0.02, 0.04, 0.06, 0.08, 0.1]
    assert nice_log(0.5, 80) == [0.5, 1, 2, 5, 10, 20, 50] or nice_log(0.5, 80) == [1, 3, 10, 30]
    assert nice(3, 3) == [3]
    shown = {0: "0", 0.05: "0.05", 999: "999", 1200: "1,200", 3_052_160: "3.05 M", 1.8e9: "1.8 G"}
    assert {value: number(value) for value in shown} == shown
    assert Axis("", 1, 100, log=True).share(10) == pytest.approx(0.5)


@pytest.mark.unit
def test_a_line_is_interrupted_where_there_is_no_number() -> None:
    chart = Chart("a line over four places", Axis("x", 0, 3), Axis("y", 0, 1))
    chart.line([0, 1, 2, 3], [0.1, 0.2, float("nan"), 0.4], "c0")
    path = re.findall(r'class="line c0" d="([^"]*)"', chart.svg())[-1]
    assert path.count("M") == 2
    assert path.count("L") == 1


@pytest.mark.unit
def test_many_points_become_few_without_losing_the_extremes() -> None:
    values = np.random.default_rng(0).normal(size=5000)
    x, mean, low, high = binned(np.arange(5000), values, 100)
    assert len(x) == 100
    assert (low.min(), high.max()) == (values.min(), values.max())
    assert mean.mean() == pytest.approx(values.mean())


@pytest.mark.unit
def test_lanes_do_not_overlap() -> None:
    spans = [(0, 9), (1, 2), (3, 4), (2, 3), (10, 11)]
    lanes = lane_numbers(spans)
    assert max(lanes) == 2
    for one, other in ((a, b) for a in range(5) for b in range(a)):
        apart = spans[one][0] > spans[other][1] or spans[other][0] > spans[one][1]
        assert apart or lanes[one] != lanes[other]


@pytest.mark.unit
@pytest.mark.parametrize(("error", "images"), [(0.0, 360), (5.0, 10_000), (100.0, 50)])
def test_intervals_hold_the_error_and_stay_possible(error: float, images: int) -> None:
    low, high = interval(error, images)
    assert 0 <= low <= error + 1e-9
    assert error - 1e-9 <= high <= 100
    assert high - low < 400 / images**0.5
