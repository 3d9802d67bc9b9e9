"""Widths chosen beforehand, as a method sees them."""

import pytest

from pcshrink.budget.fixed import FixedWidths

pytestmark = pytest.mark.unit


def test_a_narrow_group_makes_up_for_no_other():
    target = FixedWidths({"a": 4, "b": 6}, dense=20)
    assert target.limit == 10
    assert target.cost({"a": 4, "b": 6}) == target.limit
    assert target.cost({"a": 1, "b": 9}) == 13
    assert target.widths() == target.floors(0.5) == {"a": 4, "b": 6}
