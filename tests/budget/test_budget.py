"""Budgets: the cost model is exact, the widths meet the limit, what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pcshrink as pcs
from pcshrink.budget.allocate import Budget, allocate, check, cost_model
from pcshrink.budget.cost_model import METRICS, CostModel
from pcshrink.errors import ConfigError
from pcshrink.measure import widths as staircase
from pcshrink.models import create
from pcshrink.shrinker import Shrinker
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_
from pcshrink.train.recipe.schema import ShrinkSection
from pcshrink.train.run import train
from testing.training import tiny

NETS = {"digitsnet": (1, 16, 16), "resnet20": (3, 32, 32), "torchvision:mobilenet_v2": (3, 64, 64)}
# Every kind of block once (expansion, width, repeats, stride): there is a measurement for each group.
FEW_BLOCKS = {"torchvision:mobilenet_v2": {"inverted_residual_setting": [[1, 8, 1, 1], [6, 12, 2, 2], [6, 16, 1, 1]]}}


def gated(name: str) -> tuple[Shrinker, torch.Tensor]:
    torch.manual_seed(0)
    example = torch.randn(2, *NETS[name])
    return pcs.attach_(create(name, **FEW_BLOCKS.get(name, {})), example, pcs.ShrinkConfig(prove=False)), example


def settings(amount: float, metric: str = "madds", convention: str = "layers", **more: object) -> ShrinkSection:
    return ShrinkSection.model_validate({"budget": {metric: amount, "convention": convention}, **more})


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
def test_budgets_are_met_within_one_per_cent(
    metric: str, amount: float, convention: str, more: dict[str, object]
) -> None:
    shrinker, example = gated("resnet20")
    for allocation in ("uniform", "global"):
        chosen = settings(amount, metric, convention, allocation=allocation, **more)
        assert chosen.budget is not None
        budget = Budget.of(chosen.budget, shrinker, example)
        running = {g.name: torch.rand(g.channels) for g in shrinker.groups}
        widths = allocate(budget, cost_model(shrinker, example, chosen), chosen, running)
        reached = getattr(really(shrinker, example, widths, chosen.gates, convention), metric)
        assert 0.99 * budget.limit <= reached <= 1.01 * budget.limit
        dense = pcs.profile(create("resnet20"), example, convention)  # type: ignore[arg-type]
        share = amount if amount <= 1 else amount / getattr(dense, metric)
        assert reached / getattr(dense, metric) == pytest.approx(share, rel=0.01)
        align = int(more.get("align", 1))  # type: ignore[call-overload]
        assert all(width % align == 0 and width >= chosen.min_channels for width in widths.values())


def test_global_allocation_follows_the_salience() -> None:
    shrinker, example = gated("resnet20")
    chosen = settings(0.5, allocation="global")
    assert chosen.budget is not None
    budget, costs = Budget.of(chosen.budget, shrinker, example), cost_model(shrinker, example, chosen)
    running = {g.name: torch.full((g.channels,), 0.9) for g in shrinker.groups}
    running["layer1.1.conv1"] = torch.full((16,), 0.01)
    widths = allocate(budget, costs, chosen, running)
    even = allocate(budget, costs, settings(0.5))
    assert widths["layer1.1.conv1"] < even["layer1.1.conv1"]
    assert widths["layer1.2.conv1"] > widths["layer1.1.conv1"]


def test_an_impossible_budget_is_refused_with_the_smallest_possible() -> None:
    shrinker, example = gated("digitsnet")
    chosen = settings(0.001)
    assert chosen.budget is not None
    budget, costs = Budget.of(chosen.budget, shrinker, example), cost_model(shrinker, example, chosen)
    with pytest.raises(
        ConfigError, match=r"cannot be reached; the smallest possible here is ([\d,]+), a share of"
    ) as caught:
        check(budget, costs, chosen)
    smallest = float(str(caught.value).split("possible here is ")[1].split(", a share")[0].replace(",", ""))
    widths = allocate(Budget(chosen.budget, smallest, budget.dense), costs, chosen)
    assert set(widths.values()) == {2}


def test_a_latency_budget_is_measured_before_and_after(tmp_path: Path) -> None:
    budget = {"latency": 0.7, "runtime": "eager", "threads": 1}
    recipe = tiny(shrink__budget=budget, epochs={"dense": 1, "warmup": 0, "shrink": 1, "settle": 1})
    result = train(recipe, tmp_path / "run", quiet=True)
    assert result.budget is not None
    assert result.budget["metric"] == "latency"
    assert result.budget["low"] <= result.budget["reached"] <= result.budget["high"]
    assert sum(result.widths.values()) < 224
    assert "of the dense latency (eager), measured" in result.budget_line()


def test_a_latency_budget_needs_folded_gates() -> None:
    with pytest.raises(ConfigError, match="a latency budget needs gates: fold"):
        tiny(shrink__budget={"latency": 0.5}, shrink__gates="keep")


def test_align_auto_is_settled_once_for_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staircase, "measure_alignment", lambda *_args, **_kwargs: 4)
    recipe = tiny(shrink__align="auto", epochs={"dense": 0, "warmup": 0, "shrink": 1, "settle": 1}, distill=None)
    result = train(recipe, tmp_path / "run", quiet=True)
    assert all(width % 4 == 0 for width in result.widths.values())
    assert "align: 4" in (tmp_path / "run" / "recipe.yaml").read_text()
