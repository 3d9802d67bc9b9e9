"""A budget steers the push: the cost follows a curve, the widths are fixed in time, and what leaves is at zero."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from pcshrink.artifact import read
from pcshrink.methods.landing import LAND_AT, wanted
from pcshrink.methods.pcs.control import AHEAD, GAIN, LARGEST_ERROR, LEAST, MOST, Control, on_the_way
from pcshrink.train.recipe.schema import Recipe
from pcshrink.train.run import train
from testing.training import CopyAt, model_bytes, tiny, train_with_stops

pytestmark = pytest.mark.usefixtures("one_thread")


def shares(count: int) -> list[float]:
    return [n / count for n in range(count + 1)]


def test_the_widths_are_fixed_once() -> None:
    control = Control()
    assert not control.lands(LAND_AT - 0.01)
    assert control.lands(LAND_AT)
    assert control.lands(1.0)
    control.landed = True
    assert not control.lands(1.0)


@pytest.mark.parametrize(("behind", "factor"), [(0.1, 2.0), (-0.1, 0.5), (0.0, 1.0)])
def test_a_tenth_behind_for_15_per_cent_of_the_phase_doubles_the_rate(behind: float, factor: float) -> None:
    control = Control()
    control.steer(0.5, wanted(0.5) - behind, 0.15)
    assert control.boost == pytest.approx(factor)


def test_the_rate_stays_in_its_range_whatever_happens() -> None:
    far_behind, far_ahead = Control(), Control()
    for progress in shares(100)[1:]:
        far_behind.steer(progress, 0.0, 0.01)
        far_ahead.steer(progress, 1.0, 0.01)
        for control in (far_behind, far_ahead):
            assert LEAST <= control.boost <= MOST
    assert far_behind.boost == MOST
    assert far_ahead.boost < 1
    absurd = Control()
    absurd.steer(0.9, -50.0, 0.01)
    assert absurd.boost == pytest.approx(math.exp(GAIN * LARGEST_ERROR * 0.01))  # one bad figure does little


@pytest.mark.parametrize("strength", [0.3, 1.0, 3.0])
def test_networks_that_resist_more_or_less_end_near_the_curve(strength: float) -> None:
    """A made-up network whose pushed channels fall in proportion to the rate, in the time they are given at rate 1."""
    control, gone, steps = Control(), 0.0, 400
    at_landing = 0.0
    for step in range(1, steps + 1):
        progress = step / steps
        on_their_way = wanted(progress + AHEAD) - gone
        gone += strength * control.boost * on_their_way / (AHEAD * steps)
        if step % 10 == 0:
            control.steer(progress, gone, 10 / steps)
        if progress <= LAND_AT:
            at_landing = gone
    assert 0.9 <= at_landing <= 1.0


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_dictated_widths_are_approached_by_all_groups_alike(share: float) -> None:
    first, final = {"a": 16, "b": 64}, {"a": 8, "b": 16}
    way = on_the_way(share, first, final, channels=80)
    assert way == {name: round(width - share * (width - final[name])) for name, width in first.items()}
    again = on_the_way(share, way, final, channels=80)  # what is gone was cut meanwhile
    assert all(abs(again[name] - width) <= 1 for name, width in way.items())


def test_the_state_is_plain_and_complete() -> None:
    control = Control(boost=2.5, landed=True)
    again = Control()
    again.load_state_dict(control.state_dict())
    assert again == control


# The same through the trainer, on digits.

SHRINK = 6
STEPS = 22  # an epoch


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that knows the digits."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("dense")
    changes = {"model": {"name": "digitsnet", "args": {"widths": [8, 16, 32]}}, "data__batch_size": 64}
    result = train(tiny(shrink=None, distill=None, epochs={"dense": 4}, **changes), folder, quiet=True)
    assert result.compact["error"] < 10
    return result.model_dir / "model.safetensors"


def recipe(dense: Path, **shrink: Any) -> Recipe:
    model = {"name": "digitsnet", "args": {"widths": [8, 16, 32]}, "weights": str(dense)}
    changes = {"data__batch_size": 64, "epochs": {"shrink": SHRINK, "settle": 1}, "distill": None}
    return tiny(model=model, shrink={"gates": "keep", **shrink}, **changes)


def kept_shares(folder: Path) -> list[float]:
    plan = read(folder / "model").plan
    assert plan is not None
    return [len(kept) / plan.sizes[name] for name, kept in plan.groups.items()]


@pytest.mark.train
@pytest.mark.parametrize(("share", "compact_every"), [(0.3, 2), (0.6, 0)])
def test_a_budget_is_met_and_what_leaves_is_at_zero(
    share: float, compact_every: int, dense: Path, tmp_path: Path
) -> None:
    chosen = recipe(dense, budget={"madds": share}, compact_every=compact_every)
    # before the widths are fixed, and while what must go is closed; where nothing was cut before, only then
    first, second = (round(part * SHRINK * STEPS) for part in (0.4, 0.87))
    copy = CopyAt(first if compact_every else second, tmp_path / "stopped")
    result = train(chosen, tmp_path / "whole", quiet=True, callbacks=[copy])
    assert result.budget is not None
    assert result.budget.reached == pytest.approx(result.budget.limit, rel=0.01)
    assert result.cut is not None
    assert result.cut["highest"] <= 1e-3
    assert abs(result.cut["loss_jump"]) < 1e-3
    assert result.cut["leak"] <= 1e-3
    kept = kept_shares(tmp_path / "whole")
    assert max(kept) - min(kept) > 0.1  # every group found its own width
    assert result.compact["error"] < 20
    train_with_stops(chosen, tmp_path / "stopped", *([second] if compact_every else []))
    assert model_bytes(tmp_path / "stopped") == model_bytes(tmp_path / "whole")


@pytest.mark.train
def test_the_same_share_of_every_group(dense: Path, tmp_path: Path) -> None:
    chosen = recipe(dense, budget={"params": 0.5}, allocation="uniform", compact_every=2)
    result = train(chosen, tmp_path, quiet=True)
    assert result.budget is not None
    assert result.budget.reached == pytest.approx(result.budget.limit, rel=0.01)
    kept = kept_shares(tmp_path)
    assert max(kept) - min(kept) <= 0.13  # one channel of eight
    assert result.cut is not None
    assert result.cut["highest"] <= 1e-3
    assert abs(result.cut["loss_jump"]) < 1e-3
