"""Feature boosting and suppression against loops, and in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pcshrink as pcs
from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError
from pcshrink.methods.dgc import DGCConfig
from pcshrink.methods.fbs import FBS, FBSConfig, FBSGate, density, winners
from pcshrink.surgery.fold import fold
from pcshrink.surgery.gates import find_gates
from pcshrink.train.recipe.read import load_recipe
from testing.dynamic import check_run, gated


def test_a_layer_equals_the_loop() -> None:
    net, shrinker, _ = gated(FBSConfig(ratio=0.5, l1=0.25))
    net.requires_grad_(False)
    conv, norm = net.layer1[0].conv1, net.layer1[0].bn1  # type: ignore[index]
    gate = norm.pcs_gate
    assert isinstance(gate, FBSGate)
    gate.kept = 2
    gate.train()
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    out = norm(conv(x))
    total = 0.0
    for b in range(3):
        size = [sum(abs(float(v)) for v in x[b, c].flatten()) / 25 for c in range(4)]
        weight, bias = gate.predictor.weight, gate.predictor.bias
        g = [max(sum(float(weight[c, i]) * size[i] for i in range(4)) + float(bias[c]), 0.0) for c in range(4)]
        limit = sorted(g, reverse=True)[2]
        for c in range(4):
            plain = type(norm).forward(norm, type(conv).forward(conv, x))[b, c]
            factor = g[c] if g[c] > limit else 0.0
            total += factor
            torch.testing.assert_close(out[b, c], plain * factor, rtol=1e-12, atol=1e-12)
    (passed,) = gate.recorded
    assert float(passed.sum()) == pytest.approx(total)
    for other in find_gates(net).values():
        if other is not gate:
            other.recorded = ()  # type: ignore[assignment]
    loss = shrinker.penalty()
    assert float(loss) == pytest.approx(0.25 * total / 3)


def test_ties_and_rectified_saliences_let_fewer_pass() -> None:
    g = torch.tensor([[3.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 2.0]])
    assert winners(g, 2).tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert winners(g, 4).tolist() == [[1, 1, 1, 1]] * 2


def test_the_gradient_reaches_chosen_channels_only() -> None:
    net, _, images = gated(FBSConfig())
    gate = net.layer1[0].bn1.pcs_gate  # type: ignore[index]
    assert isinstance(gate, FBSGate)
    gate.kept = 1
    net.train()(images).sum().backward()
    (passed,) = gate.recorded
    touched = gate.predictor.bias.grad
    assert touched is not None
    assert bool((touched != 0).any())
    assert bool((touched[(passed == 0).all(dim=0)] == 0).all())


def test_the_density_falls_in_steps_of_a_tenth() -> None:
    assert density(0.65, 0.0, False) == 1.0
    steps = [density(0.65, progress / 100, True) for progress in range(101)]
    assert sorted(set(steps), reverse=True) == pytest.approx([0.9, 0.8, 0.7, 0.65])
    assert (steps[0], steps[-1]) == pytest.approx((0.9, 0.65))
    assert density(1.0, 0.5, True) == 1.0


def test_every_convolution_has_a_gate_and_patterns_choose_among_them() -> None:
    _, shrinker, _ = gated(FBSConfig(exclude=("conv1", "*.downsample.*"), ratio=0.5))
    assert set(shrinker.method.gates) == {f"layer{i}.0.bn{j}" for i in (1, 2, 3) for j in (1, 2)}
    assert "excluded" in shrinker.refused["conv1"]
    everywhere = gated(FBSConfig())[1].method.gates
    assert set(everywhere) - set(shrinker.method.gates) == {"bn1", "layer2.0.downsample.1", "layer3.0.downsample.1"}
    shrinker.method.start()
    shrinker.method.steps = shrinker.config.total_steps
    shrinker.aim({"layer1.0.conv1": 3})
    assert shrinker.method.gates["layer1.0.bn1"].kept == 3  # type: ignore[comparison-overlap]
    assert shrinker.method.gates["layer3.0.bn1"].kept == 8  # type: ignore[comparison-overlap]


@pytest.mark.train
def test_a_run(tmp_path: Path) -> None:
    result = check_run(tmp_path, {"method": "fbs", "budget": {"madds": 0.6}}, train={"ema": 0.9})
    assert result.budget is not None
    assert 0.95 * result.budget.limit <= result.budget.reached <= 1.01 * result.budget.limit
    assert "by the mean input" in result.budget_line()
    with pytest.raises(ConfigError, match="cannot be folded"):
        fold(pcs.load(tmp_path / "whole" / "model"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("shrink.gates=fold", "method fbs is dynamic.*gates cannot be folded"),
        ("shrink.compact_every=2", "method fbs is dynamic.*compact_every has nothing to do"),
        ("shrink.budget.params=0.5", "method fbs is dynamic.*give the budget in madds"),
        ("shrink.l1=-1", r"shrink\.l1: must be a number of at least 0"),
        ("shrink.densty=1", "unknown key"),
    ],
)
def test_what_cannot_work_is_refused_by_the_recipe(setting: str, message: str) -> None:
    plain = ["shrink.method=fbs", "shrink.gates=keep", "shrink.compact_every=0"]
    clear = ["shrink.budget=null"] if "budget" in setting else []
    with pytest.raises(ConfigError, match=message):
        load_recipe("digits", [*plain, *clear, setting])


def test_it_describes_itself() -> None:
    assert FBS.summary().startswith("Feature boosting and suppression")
    assert not FBS.static


@pytest.mark.parametrize("kind", [FBSConfig, DGCConfig])
@pytest.mark.parametrize("aimed", [{}, {"layer1.0.conv1": 3}])
def test_what_was_saved_without_a_budget_opens_every_gate_as_wide(
    kind: type[MethodConfig], aimed: dict[str, int]
) -> None:
    before, after = (gated(kind(ratio=0.3), widths=(4, 8, 12))[1].method for _ in range(2))
    if aimed:
        before.aim(aimed)
    before.start()
    before.steps = before.config.total_steps
    before.follow()
    after.load_state_dict(before.state_dict())
    assert after.shares() == before.shares()
    assert [gate.kept for gate in after.gates.values()] == [gate.kept for gate in before.gates.values()]
