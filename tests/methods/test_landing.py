"""When what must leave should be gone, when the widths are fixed, and when what is left is closed."""

from __future__ import annotations

import pytest

from pcshrink.methods.landing import CLOSE_FROM, CLOSED_AT, LAND_AT, opening, wanted

SHARES = [n / 100 for n in range(101)]


def test_what_should_be_gone_grows_from_nothing_to_all_when_the_widths_are_fixed() -> None:
    gone = [wanted(progress) for progress in SHARES]
    assert gone[0] == 0
    assert gone == sorted(gone)
    assert wanted(LAND_AT) == wanted(1.0) == 1
    assert wanted(LAND_AT / 2) == pytest.approx(0.5)  # steadily, so that few channels leave at a time


def test_what_must_go_is_closed_after_landing_and_before_the_end() -> None:
    assert LAND_AT < CLOSE_FROM < CLOSED_AT < 1
    openings = [opening(progress) for progress in SHARES]
    assert openings == sorted(openings, reverse=True)
    assert opening(CLOSE_FROM) == 1
    assert opening((CLOSE_FROM + CLOSED_AT) / 2) == pytest.approx(0.5)
    assert opening(CLOSED_AT) == opening(1.0) == 0
