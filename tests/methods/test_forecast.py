"""The rate follows a forecast: which push brings so many channels to zero in time that the budget is met."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pcshrink.methods.pcs.control import LEAST, MOST, Control
from pcshrink.methods.pcs.forecast import (
    FIRMEST,
    READY_AT,
    WINDOW,
    Firmness,
    enough_push,
    held_by_task,
    needed_push,
    ramp,
    ramp_ahead,
)


def test_the_ramp_starts_at_nothing_and_never_falls() -> None:
    values = [ramp(n / 50) for n in range(51)]
    assert values[0] == 0
    assert values == sorted(values)
    assert values[-1] == 1


@pytest.mark.parametrize("progress", [0.0, 0.2, 0.59])
def test_what_the_ramp_adds_up_to_is_its_sum_in_small_steps(progress: float) -> None:
    parts = 10_000
    width = (READY_AT - progress) / parts
    summed = 0.0
    for part in range(parts):
        summed += ramp(progress + (part + 0.5) * width) * width
    if progress + 0.05 <= READY_AT:
        assert ramp_ahead(progress) == pytest.approx(summed, rel=1e-6)
    else:
        assert ramp_ahead(progress) > summed  # late in the phase it looks a little further


def test_a_channel_that_nobody_holds_needs_what_is_left_of_it() -> None:
    """Pushed down by 0.3 and lowered by 0.3: the task had no say."""
    saliences = torch.tensor([0.6])
    held = held_by_task(saliences, 0.9, torch.tensor([0.3]), 0.3)
    assert held == pytest.approx(0.0, abs=1e-6)
    assert needed_push(saliences, held, 0.3) == pytest.approx(0.6)


def test_what_the_task_holds_needs_more_the_more_it_is_held() -> None:
    saliences = torch.tensor([0.3, 0.5, 0.8, 1.0])
    held = held_by_task(saliences, 0.9, torch.full((4,), 0.6), 0.3)
    needed = needed_push(saliences, held, 0.3)
    assert needed.tolist() == sorted(needed.tolist())
    assert needed[0] == pytest.approx(0.3)
    assert bool((needed[1:] > saliences[1:]).all())


@pytest.mark.parametrize(("now", "expected"), [(3.0, 3.0), (0.2, 1.0), (500.0, FIRMEST)])
def test_how_firmly_the_task_resists_is_found_in_a_few_windows(now: float, expected: float) -> None:
    """Made-up channels that the task raised by 1 a phase on average and raises by ``now`` a phase at the moment."""
    firmness, count, salience, pushed, progress = Firmness(), 7, 0.5, 1.0, 0.3
    for _ in range(12):
        firmness.look(count * salience, pushed, count, 1.0, progress)
        progress += WINDOW * 1.01
        pushed += 0.1
        salience += now * WINDOW * 1.01 - 0.1
    assert firmness.factor == pytest.approx(expected, rel=0.01)
    assert Firmness(**firmness.state_dict()) == firmness


def test_between_windows_nothing_is_measured() -> None:
    firmness = Firmness()
    firmness.look(3.0, 1.0, 5, 1.0, 0.5)
    firmness.look(99.0, 9.0, 5, 1.0, 0.5 + WINDOW / 2)
    assert firmness.factor == 1


def test_enough_is_the_least_push_that_meets_the_budget() -> None:
    torch.manual_seed(0)
    for _ in range(50):
        needed, cost = torch.rand(20), torch.rand(20)
        needed[torch.rand(20) < 0.3] = math.inf
        if bool(needed.isinf().all()):
            continue
        limit = float(cost[needed.isfinite()].sum()) * float(torch.rand(()))

        def meets(leave: Tensor, cost: Tensor = cost, limit: float = limit) -> bool:
            return float(cost[leave].sum()) >= limit

        tried = [float(push) for push in needed[needed.isfinite()] if meets(needed <= push)]
        assert enough_push(needed, meets) == pytest.approx(min(tried))


def test_the_rate_moves_to_the_forecast_and_stays_in_its_range() -> None:
    control = Control(boost=1.0)
    boosts = []
    for _ in range(100):
        control.follow(4.0, 0.01, 0.0)
        boosts.append(control.boost)
    assert boosts == sorted(boosts)
    assert boosts[0] < 2
    assert boosts[-1] == pytest.approx(4.0)
    for asked, bound in ((1e9, MOST), (0.0, LEAST)):
        for _ in range(1000):
            control.follow(asked, 0.01, 0.0)
        assert control.boost == pytest.approx(bound)


def test_the_rate_does_not_fall_below_the_least() -> None:
    control = Control(boost=2.0)
    for _ in range(100):
        control.follow(0.1, 0.01, 1.9)
    assert control.boost == pytest.approx(1.9)
