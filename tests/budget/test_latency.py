"""Widths that meet a latency, which is checked on whole networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pcshrink as pcs
from pcshrink.budget import latency as latency_budget
from pcshrink.budget.cost_model import CostModel
from pcshrink.errors import ConfigError, OutOfReachError, ShrinkWarning
from pcshrink.measure import timing
from pcshrink.measure.layers import LayerTable, layers_of
from pcshrink.models import create
from testing.machines import fake_times

pytestmark = pytest.mark.unit


def shrinker(**settings: Any) -> tuple[pcs.Shrinker, torch.Tensor]:
    model, example = create("pcshrink:resnet20"), torch.randn(1, 3, 32, 32)
    return pcs.attach_(model, example, pcs.ShrinkConfig(prove=False, **settings)), example


def fake_whole(monkeypatch: pytest.MonkeyPatch, overhead: float) -> None:
    """Whole networks take what their layers take, and something more."""

    def measured(models: Any, example: Any, runtime: Any, **options: Any) -> Any:
        times = {}
        for name, model in models.items():
            table = LayerTable("eager")
            times[name] = [table.total(layers_of(model, example)) + overhead] * 20
        return _Timed(times)

    monkeypatch.setattr(latency_budget, "compare", measured)


class _Timed:
    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times = times
        self.results = {name: _Milliseconds(1e3 * taken[0]) for name, taken in times.items()}

    def ratio(self, name: str, reference: str) -> timing.Ratio:
        return timing.paired_ratio(self.times[name], self.times[reference])


class _Milliseconds:
    def __init__(self, median_ms: float) -> None:
        self.median_ms = median_ms


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_a_latency_budget_is_met_by_the_whole_network(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 4)
    fake_whole(monkeypatch, overhead=0.005)  # an eighth of the dense time, which the table knows nothing of
    found = latency_budget.choose_widths(*shrinker(), share, runtime="eager")
    assert found.met, found
    assert found.reached == pytest.approx(share, rel=0.05)


def test_a_budget_out_of_reach_says_what_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 1)
    fake_whole(monkeypatch, overhead=0.04)
    found = latency_budget.choose_widths(*shrinker(), 0.2, runtime="eager", min_channels=2)
    assert not found.met
    assert "cannot get narrower" in found.note
    assert f"{found.reached:.3f}" in found.note


def test_widths_are_aligned_and_free_ones_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 16)
    fake_whole(monkeypatch, overhead=0.0)
    found = latency_budget.choose_widths(*shrinker(), 0.5, runtime="eager", align=8)
    assert all(kept % 8 == 0 for kept in found.keep.values())
    # On this machine less than 16 channels cost as much as 16: nobody gets less.
    assert min(found.keep.values()) >= 16


def test_widths_follow_the_shrinkers_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 1)
    fake_whole(monkeypatch, overhead=0.04)
    attached, example = shrinker(align=4, min_channels=8)
    found = latency_budget.choose_widths(attached, example, 0.2, runtime="eager")
    assert set(found.keep.values()) == {8}  # 0.2 is out of reach, so all are as narrow as they may be
    found = latency_budget.choose_widths(attached, example, 0.8, runtime="eager")
    assert all(kept % 4 == 0 for kept in found.keep.values())
    found = latency_budget.choose_widths(attached, example, 0.2, runtime="eager", align=1, min_channels=3)
    assert set(found.keep.values()) == {3}


def test_a_measured_budget_on_this_machine() -> None:
    attached, example = shrinker()
    table = LayerTable("eager", threads=1, seconds=0.002)
    options: Any = {"runtime": "eager", "threads": 1, "align": 16, "seconds": 0.05, "table": table}
    found = latency_budget.choose_widths(attached, example, 0.8, **options)
    assert 0 < found.low <= found.reached <= found.high
    assert set(found.keep) == {group.name for group in attached.groups}
    assert found.met or found.note


def test_the_line_through_two_widths_predicts_what_the_layers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 1)
    attached, example = shrinker()
    search = latency_budget.Search(attached, example, LayerTable("eager"))
    costs = CostModel.of(attached, example, gates="fold")
    costs.set_times(search.times())
    for ratio in (1.0, 0.75, 0.5, 0.25):
        keep = search.at(ratio)
        assert costs.cost(costs.widths(keep), "latency") == pytest.approx(search.predict(keep) * search.whole, rel=0.1)


def test_a_loop_of_ones_own_lands_at_learned_widths_that_meet_a_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 1)
    fake_whole(monkeypatch, overhead=0.004)
    attached, example = shrinker(price="latency", total_steps=8)
    with pytest.warns(ShrinkWarning, match="8 steps"):
        pcs.set_budget(attached, example, latency=0.6, runtime="eager", gates="fold")
    optimizer = torch.optim.SGD(attached.param_groups(weight_decay=0.0), lr=1e-4)
    worth = torch.Generator().manual_seed(0)
    for gate in attached.method.gates.values():
        gate.running.copy_(torch.rand(gate.running.shape, generator=worth))
    for _ in range(8):
        (attached.model(torch.randn(2, 3, 32, 32)).square().mean() + attached.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        attached.step()
    left = {g.name: g.channels - g.k for g in attached.groups}
    shares = {left[g.name] / g.channels for g in attached.groups}
    assert len(shares) > 2  # not one share for all
    search = latency_budget.Search(attached, example, LayerTable("eager"))
    models = {"dense": search.dense, "compact": search.cut(left)}
    assert latency_budget.compare(models, example, "eager").ratio("compact", "dense").value == pytest.approx(
        0.6, rel=0.05
    )


def test_a_latency_in_a_loop_of_ones_own_needs_folded_gates() -> None:
    with pytest.raises(ConfigError, match='needs gates="fold"'):
        pcs.set_budget(*shrinker(), latency=0.5)


def test_a_latency_out_of_reach_is_refused_in_a_loop_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 1)
    with pytest.raises(OutOfReachError, match=r"0.01 is out of reach: with the narrowest widths the layers still take"):
        pcs.set_budget(*shrinker(min_channels=8), latency=0.01, runtime="eager", gates="fold")


def test_impossible_share() -> None:
    with pytest.raises(ConfigError, match="share"):
        latency_budget.choose_widths(*shrinker(), 1.5)


def test_the_aim_is_sought_between_what_was_too_fast_and_too_slow() -> None:
    """A network whose layers cost more alone than together: aims in proportion would leap from side to side."""

    def reached(aim: float) -> float:
        return max(1.5 * aim - 0.5, 0.05)

    tried = [(0.5, reached(0.5))]
    while abs(tried[-1][1] - 0.5) > 0.01 and len(tried) < latency_budget.TRIES:
        aim = latency_budget._closer(tried, 0.5)
        tried.append((aim, reached(aim)))
    assert tried[-1][1] == pytest.approx(0.5, abs=0.01)
