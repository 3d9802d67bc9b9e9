"""Differentiable allocation: chances, their gradient and the projection against plain loops, and a short run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel
from pcshrink.errors import ConfigError
from pcshrink.methods.dsa import Allocation, DSAConfig
from pcshrink.methods.keep_ratio import chances, project, ratio_gradient, shares
from testing.methods import Stream, check_short_run, short_recipe

SCORES = [[0.3, 1.1, 0.8, 2.0, 0.05], [1.0, 1.2, 0.9]]


def padded(rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    values, real = torch.zeros(2, 5, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.bool)
    for index, row in enumerate(rows):
        values[index, : len(row)] = torch.tensor(row, dtype=torch.float64)
        real[index, : len(row)] = True
    return values, real


def loop_chances(scores: list[float], ratio: float, sharpness: float) -> list[float]:
    """Solve for beta_1 by trying ever finer steps on a logarithmic scale."""

    def at(log_beta: float) -> list[float]:
        shares = [1 / (1 + math.exp(-sharpness * (math.log(b) - log_beta))) for b in scores]
        return [min(1.0, 0.01 + share) for share in shares]

    log_beta, step = -20.0, 1.0
    while step > 1e-14:
        while sum(at(log_beta + step)) / len(scores) > ratio:
            log_beta += step
        step /= 2
    return at(log_beta)


@pytest.mark.parametrize("sharpness", [1.0, 7.0, 100.0])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.993])
def test_chances_add_up_to_the_ratio_and_grow_with_the_score(sharpness: float, ratio: float) -> None:
    scores, real = padded(SCORES)
    got = chances(shares(scores, real, torch.tensor([ratio, ratio], dtype=torch.float64), sharpness))
    for row, own, kept in zip(got, SCORES, real, strict=True):
        assert row[kept].tolist() == pytest.approx(loop_chances(own, ratio, sharpness), abs=1e-8)
        assert float(row[kept].mean()) == pytest.approx(ratio, abs=1e-9)


def test_equal_and_zero_scores_are_harmless() -> None:
    scores, real = padded([[1.0] * 5, [0.0, 0.0, 1.0]])
    got = chances(shares(scores, real, torch.tensor([0.4, 0.5], dtype=torch.float64), 3.0))
    assert got[0].tolist() == pytest.approx([0.4] * 5)
    assert bool(got.isfinite().all())


def test_the_gradient_of_a_ratio_is_that_of_the_solved_chances() -> None:
    scores, real = padded(SCORES)
    ratios = torch.tensor([0.45, 0.6], dtype=torch.float64)
    weights = torch.randn(2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = ratio_gradient(weights, shares(scores, real, ratios, 4.0), real)
    for index, row in enumerate(SCORES):
        step = 1e-5
        more, less = (loop_chances(row, float(ratios[index]) + sign * step, 4.0) for sign in (1, -1))
        slope = sum(float(weights[index, i]) * (more[i] - less[i]) / (2 * step) for i in range(len(row)))
        assert float(got[index]) == pytest.approx(slope, rel=1e-4)


def test_the_gradient_survives_chances_that_are_all_settled() -> None:
    scores, real = padded([[1.0, 1.0, 1e6, 1e6, 1e6], [1.0, 1e6, 1e6]])
    share = shares(scores, real, torch.tensor([0.6, 0.66], dtype=torch.float64), 100.0)
    assert bool(ratio_gradient(torch.ones(2, 5, dtype=torch.float64), share, real).isfinite().all())


def test_the_projection_meets_the_cost_along_its_gradient() -> None:
    def cost(theta: Tensor) -> float:
        a, b, c = theta.sigmoid().tolist()
        return 8 * a * b + 2 * b * c + 0.5 * c

    start = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64)
    now = cost(start)
    moved = project(start, cost, 0.98 * now)
    assert cost(moved) == pytest.approx(0.98 * now, rel=2e-3)
    assert cost(moved) <= 0.98 * now
    slopes = []
    for index in range(3):
        nudge = torch.zeros(3, dtype=torch.float64)
        nudge[index] = 1e-6
        slopes.append((cost(start + nudge) - now) / 1e-6)
    change = (start - moved).tolist()
    assert [c / change[0] for c in change] == pytest.approx([s / slopes[0] for s in slopes], rel=1e-2)
    assert torch.equal(project(start, cost, now + 1), start)  # already allowed
    assert cost(project(start, cost, 0.1 * now)) <= 0.1 * now  # far away


def attach(share: float = 0.5, norm: bool = True, **settings: object) -> tuple[nn.Module, Allocation, Tensor]:
    torch.manual_seed(0)
    model = Stream().double()
    if not norm:
        model.nb = nn.Identity()
    x = torch.randn(7, 3, 6, 6, dtype=torch.float64)
    shrinker = pcs.attach_(model, x[:2], DSAConfig(total_steps=40, **settings))  # type: ignore[arg-type]
    limit = Limit.of(BudgetConfig(madds=share), shrinker, x[:2])
    shrinker.method.set_target(CostTarget(limit, CostModel.of(shrinker, x[:2]), shrinker.config, shrinker.align))
    return model, shrinker.method, x


def test_channels_are_scored_by_their_first_norm_or_else_by_their_filter() -> None:
    model, method, _ = attach(norm=False)
    model.na.weight.data.normal_()
    assert method.scores()["a"].tolist() == [abs(w) for w in model.na.weight.tolist()]
    filters = [sum(abs(w) for w in row) for row in model.b.weight.flatten(1).tolist()]
    assert method.scores()["b"].tolist() == pytest.approx(filters, rel=1e-12)


def test_masks_of_a_group_agree_and_their_gradient_is_that_of_what_passes() -> None:
    model, method, x = attach()
    method.theta -= 5  # half of the channels
    method.start()
    gates = method.drawn_gates
    assert torch.equal(gates["na"].drawn, gates["nd"].drawn)
    assert set(gates["na"].drawn.tolist()) == {0.0, 1.0}
    model.train()
    out = {}
    model.na.register_forward_hook(lambda _m, _a, y: out.setdefault("passed", y).retain_grad())
    added = method.loss()
    assert float(added.detach()) == 0  # it only tells by what the whole loss is multiplied
    (F.cross_entropy(model(x), torch.arange(7) % 4) * 1024 + added).backward()
    passed, drawn = out["passed"], gates["na"].drawn
    for c in range(6):
        if drawn[c] == 1:
            expected = (passed.grad[:, c] * passed[:, c].detach()).sum()
            assert float(drawn.grad[c]) == pytest.approx(float(expected), rel=1e-9)


def test_a_loss_scaler_does_not_change_the_step() -> None:
    thetas = []
    for scale in (1.0, 4096.0):
        model, method, x = attach()
        method.start()
        model.train()
        ((F.cross_entropy(model(x), torch.arange(7) % 4) + method.loss()) * scale).backward()
        method.after_step()
        thetas.append(method.theta)
    torch.testing.assert_close(*thetas)
    assert float(thetas[0].max()) < 5


def test_ratios_fall_to_the_budget_and_the_final_widths_meet_it() -> None:
    model, method, x = attach(0.4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    method.start()
    costs, landed, scores = [], [], {}
    for _ in range(40):
        (F.cross_entropy(model.train()(x), torch.arange(7) % 4) + method.loss()).backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
        costs.append(method.target.cost(method.kept(method.theta)) / method.target.dense)
        if method.landed is not None:
            landed.append(method.keep())
            scores = method.scores() if len(landed) == 1 else scores
    assert costs[14] == pytest.approx(0.7, abs=0.01)
    assert max(costs[30:]) <= 0.4 + 1e-6
    assert len(landed) == 7  # from 85 % of the phase on the choice holds, so that the rest can adapt to it
    for keep in landed:
        assert all(torch.equal(flags, landed[0][name]) for name, flags in keep.items())
    assert all(gate.drawn is None for gate in method.drawn_gates.values())
    keep = {name: int(flags.sum()) for name, flags in method.keep().items()}
    assert method.target.cost(keep) <= method.target.limit
    for name, flags in method.keep().items():
        assert min(scores[name][flags].tolist()) >= max(scores[name][~flags].tolist(), default=0)


def test_without_a_budget_it_says_so_before_training() -> None:
    with pytest.raises(ConfigError, match="method dsa shares out what a budget leaves; set madds"):
        short_recipe("dsa", budget=None)
    shrinker = pcs.attach_(Stream(), torch.randn(2, 3, 6, 6), DSAConfig())
    with pytest.raises(ConfigError, match="what a budget leaves, and there is none"):
        shrinker.step()


@pytest.mark.parametrize(("setting", "value"), [("reach", 0), ("sharpness", 0.5), ("draw", -1)])
def test_settings_are_checked(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"DSAConfig\.{setting} must be"):
        DSAConfig(**{setting: value})  # type: ignore[arg-type]


@pytest.mark.train
def test_short_run(tmp_path: Path) -> None:
    check_short_run(tmp_path, "dsa")
