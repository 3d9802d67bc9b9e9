"""Budgets: the cost model is exact, the widths meet the limit, what cannot be is refused."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcshrink as pcs
from pcshrink.budget import cost_model
from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import METRICS, BudgetConfig
from pcshrink.budget.cost_model import CostModel
from pcshrink.errors import ConfigError, OutOfReachError
from pcshrink.measure import widths as staircase
from pcshrink.measure.layers import LayerTable
from pcshrink.methods.registry import method_class
from pcshrink.models import create
from pcshrink.shrinker import Shrinker
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_
from pcshrink.train.interrupt import Interrupted
from pcshrink.train.run import train
from testing.hurry import short_timings
from testing.training import StopAfterStep, tiny

NETS = {"digitsnet": (1, 16, 16), "resnet20": (3, 32, 32), "torchvision:mobilenet_v2": (3, 64, 64)}
# Every kind of block once (expansion, width, repeats, stride): there is a measurement for each group.
FEW_BLOCKS = {"torchvision:mobilenet_v2": {"inverted_residual_setting": [[1, 8, 1, 1], [6, 12, 2, 2], [6, 16, 1, 1]]}}


def gated(name: str) -> tuple[Shrinker, torch.Tensor]:
    torch.manual_seed(0)
    example = torch.randn(2, *NETS[name])
    return pcs.attach_(create(name, **FEW_BLOCKS.get(name, {})), example, pcs.ShrinkConfig(prove=False)), example


def target_of(
    shrinker: Shrinker,
    example: torch.Tensor,
    amount: float,
    metric: str = "madds",
    convention: Any = "layers",
    *,
    gates: Any = "keep",
    align: int = 1,
) -> CostTarget:
    config = BudgetConfig(**{metric: amount, "convention": convention})
    costs = CostModel.of(shrinker, example, gates=gates, convention=convention)
    steps = dict.fromkeys(costs.names, align)
    return CostTarget(Limit.of(config, shrinker, example), costs, shrinker.config, steps, gates)


def really(
    shrinker: Shrinker, example: torch.Tensor, widths: dict[str, int], gates: str, convention: str
) -> pcs.profile:
    """The profile of a network that was really cut to these widths, at random channels."""
    keep = {g.name: torch.randperm(g.channels) < widths[g.name] for g in shrinker.groups}
    small = apply_plan(shrinker.model, shrinker.plan(keep))
    if gates == "fold":
        remove_gates_(small)
    return pcs.profile(small, example, convention)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("convention", ["layers", "paper"])
@pytest.mark.parametrize("gates", ["keep", "fold"])
@pytest.mark.parametrize("name", NETS)
def test_the_cost_model_is_exact(name: str, gates: str, convention: str) -> None:
    shrinker, example = gated(name)
    model = CostModel.of(shrinker, example, gates=gates, convention=convention)  # type: ignore[arg-type]
    widths = {g.name: int(torch.randint(1, g.channels + 1, ())) for g in shrinker.groups}
    counted = really(shrinker, example, widths, gates, convention)
    for metric in METRICS:
        assert model.cost(model.widths(widths), metric) == pytest.approx(getattr(counted, metric), abs=0.5)


@pytest.mark.parametrize("right", [True, False])
def test_costs_known_before_a_cut_are_used_only_if_they_hold(right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shrinker, example = gated("resnet20")
    before = CostModel.of(shrinker, example, convention="paper")
    if not right:
        before.slopes = {metric: slopes * 1.01 for metric, slopes in before.slopes.items()}
    profiles: list[object] = []
    own = cost_model.profile
    monkeypatch.setattr(cost_model, "profile", lambda *a: profiles.append(a) or own(*a))
    model = CostModel.of(shrinker, example, convention="paper", before=before)
    assert (len(profiles) < len(model.names)) == right
    widths = {g.name: int(torch.randint(1, g.channels + 1, ())) for g in shrinker.groups}
    counted = really(shrinker, example, widths, "keep", "paper")
    for metric in METRICS:
        assert model.cost(model.widths(widths), metric) == pytest.approx(getattr(counted, metric), abs=0.5)


@pytest.mark.parametrize(
    ("metric", "amount", "convention", "more"),
    [
        ("madds", 0.43, "layers", {}),
        ("madds", 0.43, "paper", {"gates": "fold"}),
        ("madds", 17_600_000, "paper", {}),
        ("params", 0.3, "layers", {}),
        ("mem_access", 0.6, "paper", {"gates": "fold"}),
        ("madds", 0.5, "layers", {"align": 4}),
    ],
)
def test_budgets_are_met_within_one_per_cent(metric: str, amount: float, convention: str, more: dict[str, Any]) -> None:
    shrinker, example = gated("resnet20")
    target = target_of(shrinker, example, amount, metric, convention, **more)
    for scores in (None, {g.name: torch.rand(g.channels) for g in shrinker.groups}):
        widths = target.widths(scores)
        reached = getattr(really(shrinker, example, widths, target.gates, convention), metric)
        assert 0.99 * target.limit <= reached <= 1.01 * target.limit
        dense = pcs.profile(create("resnet20"), example, convention)  # type: ignore[arg-type]
        share = amount if amount <= 1 else amount / getattr(dense, metric)
        assert reached / getattr(dense, metric) == pytest.approx(share, rel=0.01)
        assert all(width % target.align[name] == 0 and width >= 2 for name, width in widths.items())


@pytest.mark.parametrize("seed", range(4))
def test_coarse_widths_keep_what_is_worth_the_most(seed: int) -> None:
    shrinker, example = gated("digitsnet")
    target = target_of(shrinker, example, 0.4, align=8)
    generator = torch.Generator().manual_seed(seed)
    scores = {g.name: torch.rand(g.channels, generator=generator) for g in shrinker.groups}

    def worth(widths: Iterable[int]) -> float:
        return sum(float(scores[n].topk(int(w)).values.sum()) for n, w in zip(target.model.names, widths, strict=True))

    steps = [range(8, int(full) + 1, 8) for full in target.model.full]
    choices = [np.array(choice, dtype=np.float64) for choice in itertools.product(*steps)]
    close = [choice for choice in choices if target.enough <= target.cost_of(choice) <= target.limit]
    chosen = target.model.widths(target.widths(scores))
    assert target.enough <= target.cost_of(chosen) <= target.limit
    assert worth(chosen) >= 0.95 * max(map(worth, close))


@pytest.mark.parametrize("seed", range(6))
def test_exchanged_widths_keep_to_steps_and_floors(seed: int) -> None:
    shrinker, example = gated("digitsnet")
    draw = np.random.default_rng(seed)
    target = target_of(shrinker, example, float(draw.uniform(0.3, 0.9)), align=int(draw.choice([3, 5, 8, 12])))
    scores = {g.name: torch.from_numpy(draw.random(g.channels)) for g in shrinker.groups}
    floors = target.floors(0.5)
    for name, width in target.widths(scores, floors).items():
        step, full = target.align[name], int(dict(zip(target.model.names, target.model.full, strict=True))[name])
        assert width >= floors[name]
        assert width == full or width % step == 0


def test_widths_by_scores_follow_the_scores() -> None:
    shrinker, example = gated("resnet20")
    target = target_of(shrinker, example, 0.5)
    running = {g.name: torch.full((g.channels,), 0.9) for g in shrinker.groups}
    running["layer1.1.conv1"] = torch.full((16,), 0.01)
    widths, even = target.widths(running), target.widths()
    assert widths["layer1.1.conv1"] < even["layer1.1.conv1"]
    assert widths["layer1.2.conv1"] > widths["layer1.1.conv1"]


def test_an_impossible_budget_is_refused_with_the_smallest_possible() -> None:
    shrinker, example = gated("digitsnet")
    target = target_of(shrinker, example, 0.001)
    with pytest.raises(
        ConfigError, match=r"cannot be reached; the smallest possible here is ([\d,]+), a share of"
    ) as caught:
        target.check()
    smallest = float(str(caught.value).split("possible here is ")[1].split(", a share")[0].replace(",", ""))
    target.budget.limit = smallest
    assert set(target.widths().values()) == {2}


@pytest.mark.parametrize(("ratio", "amount"), [(0.5, 0.6), (0.5, 0.2), (0.9, 0.5)])
def test_floors_leave_room_for_groups_to_differ(ratio: float, amount: float) -> None:
    shrinker, example = gated("resnet20")
    target = target_of(shrinker, example, amount)
    floors = target.floors(ratio)
    assert target.cost(floors) <= 0.8 * target.limit
    for group in shrinker.groups:
        assert 2 <= floors[group.name] <= math.ceil((1 - ratio) * group.channels)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of madds, params, mem_access and latency"),
        ({"madds": 0.5, "params": 0.5}, "exactly one of"),
        ({"madds": 0}, "madds must be a share or a number above 0; got 0"),
        ({"params": True}, "params must be a share or a number above 0; got True"),
        ({"latency": 1.0}, "latency must be a share above 0 and below 1; got 1.0"),
        ({"latency": 0.5, "batch": 0}, "batch must be a whole number of at least 1; got 0"),
        ({"latency": 0.5, "threads": 1.5}, "threads must be a whole number of at least 1; got 1.5"),
    ],
)
def test_a_wrong_budget_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BudgetConfig(**given)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("fbs", "method fbs chooses for each input, so a budget is met by measuring images while it trains"),
        ("mil", "method mil takes no budget; set sparsity instead"),
        ("lasso", "method lasso takes no budget; set the strength instead"),
    ],
)
def test_a_method_that_takes_no_budget_in_a_loop_says_so(method: str, message: str) -> None:
    config = method_class(method).Config(prove=False)
    shrinker = pcs.attach_(create("digitsnet"), torch.randn(2, *NETS["digitsnet"]), config)
    with pytest.raises(ConfigError, match=message):
        pcs.set_budget(shrinker, torch.randn(2, *NETS["digitsnet"]), madds=0.5)


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole networks are timed for a moment only: how precise that is, is asked elsewhere."""
    short_timings(monkeypatch.setattr)


@pytest.mark.usefixtures("short_looks")
def test_a_latency_budget_is_measured_before_and_after(tmp_path: Path) -> None:
    budget = {"latency": 0.7, "runtime": "eager", "threads": 1}
    recipe = tiny(shrink__budget=budget, epochs={"dense": 1, "warmup": 0, "shrink": 1, "settle": 1})
    result = train(recipe, tmp_path / "run", quiet=True)
    assert result.budget is not None
    assert result.budget.metric == "latency"
    assert result.budget.low <= result.budget.reached <= result.budget.high
    assert sum(result.widths.values()) < 224
    assert "of the dense latency (eager), measured" in result.budget_line()


@pytest.mark.train
@pytest.mark.usefixtures("short_looks")
def test_a_run_that_stopped_keeps_the_layer_times_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink = {"budget": {"latency": 0.7, "runtime": "eager", "threads": 1}, "gates": "fold", "compact_every": 1}
    recipe = tiny(
        shrink=shrink | {"price": "latency"}, epochs={"dense": 1, "warmup": 0, "shrink": 3, "settle": 1}, distill=None
    )
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run", quiet=True, callbacks=[StopAfterStep(20)])

    def measure(self: LayerTable, layers: Any) -> None:
        pytest.fail("layers were measured again")

    monkeypatch.setattr(LayerTable, "measure", measure)
    result = train(recipe, tmp_path / "run", resume=True, quiet=True)
    assert result.budget is not None
    assert result.budget.limit == 0.7
    assert sum(result.widths.values()) < 32
    assert result.cut is not None
    assert result.cut["highest"] < 0.01  # nothing alive is cut


@pytest.mark.usefixtures("short_looks")
def test_a_share_that_misses_its_budget_is_measured_twice_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, calls = import_module("pcshrink.measure.latency"), []
    fair = measured.compare

    def unlucky_at_first(models: dict[str, Any], *given: Any, **settings: Any) -> Any:
        found = fair(models, *given, **settings)
        if "compact" in models:
            calls.append(found)
            found.times["compact"] = [(100 if len(calls) == 1 else 1) * taken for taken in found.times["compact"]]
        return found

    monkeypatch.setattr(measured, "compare", unlucky_at_first)
    budget = {"latency": 0.9, "runtime": "eager", "threads": 1}
    recipe = tiny(shrink__budget=budget, epochs={"dense": 1, "warmup": 0, "shrink": 1, "settle": 1})
    result = train(recipe, tmp_path / "run", quiet=True)
    assert len(calls) == 3
    assert result.budget is not None
    assert result.budget.reached < 10


def test_a_latency_out_of_reach_is_refused_before_training(tmp_path: Path) -> None:
    shrink = {"budget": {"latency": 0.01, "runtime": "eager", "threads": 1}, "gates": "fold"}
    with pytest.raises(OutOfReachError, match="out of reach: with the narrowest widths"):
        train(tiny(shrink=shrink), tmp_path / "run", quiet=True)
    assert not list(tmp_path.rglob("checkpoints/*"))


def test_a_latency_budget_needs_folded_gates() -> None:
    with pytest.raises(ConfigError, match="a latency budget needs gates: fold"):
        tiny(shrink__budget={"latency": 0.5}, shrink__gates="keep")


def test_align_auto_is_settled_once_for_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staircase, "measure_alignment", lambda runtime, threads: {"eager": 4}[runtime])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # it need not be installed
    recipe = tiny(shrink__align="auto", epochs={"dense": 0, "warmup": 0, "shrink": 1, "settle": 1}, distill=None)
    result = train(recipe, tmp_path / "run", quiet=True)
    assert all(width % 4 == 0 for width in result.widths.values())
    assert "align: 4" in (tmp_path / "run" / "recipe.yaml").read_text()
