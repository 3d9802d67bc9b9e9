"""Manifold regularised dynamic pruning against loops, and in a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pcshrink.errors import SalienceError
from pcshrink.methods.base import Step
from pcshrink.methods.manidp import (
    OFF,
    ManiDP,
    ManiDPConfig,
    ManiDPGate,
    ranked,
    relations,
    remaining,
    sample_weights,
)
from pcshrink.shrinker import split_parameters
from testing.dynamic import LONGER, check_run, gated


def gate_of(net: torch.nn.Module) -> ManiDPGate:
    gate = net.layer1[0].bn2.pcs_gate  # type: ignore[index, union-attr]
    assert isinstance(gate, ManiDPGate)
    return gate


def test_a_layer_equals_the_loop() -> None:
    net, _, _ = gated(ManiDPConfig(clamp=0.9))
    net.requires_grad_(False)
    conv, norm = net.layer1[0].conv2, net.layer1[0].bn2  # type: ignore[index]
    gate = gate_of(net)
    gate.threshold = 0.4
    x = torch.rand(4, 4, 3, 3, dtype=torch.float64)
    out = norm(conv(x))
    plain = F.batch_norm(
        F.conv2d(x, conv.weight, padding=1), norm.running_mean, norm.running_var, norm.weight, norm.bias
    )
    factors = set()
    for b in range(4):
        pooled = [sum(float(v) for v in x[b, c].flatten()) / 9 for c in range(4)]
        hidden = [max(sum(float(row[i]) * pooled[i] for i in range(4)), 0.0) for row in gate.fc1.weight]
        for c in range(4):
            z = sum(float(w) * h for w, h in zip(gate.fc2.weight[c], hidden, strict=True)) + float(gate.fc2.bias[c])
            salience = min(max(z, 0.0), 0.9)
            factor = salience if salience >= 0.4 else 0.0
            factors.add(round(factor, 3))
            torch.testing.assert_close(out[b, c], plain[b, c] * factor, rtol=1e-11, atol=1e-11)
    assert {0.0, 0.9} < factors  # cut, clamped, and between


def test_the_two_losses_equal_the_loops() -> None:
    config = ManiDPConfig(complexity=0.3, similarity=0.7, easy=0.5, gamma=2.0)
    net, shrinker, images = gated(config)
    method = shrinker.method
    assert isinstance(method, ManiDP)
    method.mean_loss = 3.0
    labels = torch.tensor([0, 1, 2, 0, 1])
    scores = net.train()(images)
    scores.data[0, 0] += 5  # an easy sample
    expected = 0.0
    losses = [
        math.log(sum(math.exp(float(s)) for s in row)) - float(row[y])
        for row, y in zip(scores.detach(), labels, strict=True)
    ]
    weights = [((1.5 - loss) / 1.5) ** 2 if loss < 1.5 else 0.0 for loss in losses]
    assert sum(w > 0 for w in weights) in range(1, 5)
    for gate in method.manidp_gates.values():
        ((salience, features),) = gate.recorded
        s, f = salience.detach(), features.detach()
        expected += 0.3 * sum(w * float(row.sum()) / len(row) for w, row in zip(weights, s, strict=True)) / 5
        grams = []
        for a in (s, f):
            gram = [
                [sum(float(p) * float(q) for p, q in zip(a[i], a[j], strict=True)) for j in range(5)] for i in range(5)
            ]
            grams.append([[v / math.sqrt(sum(u * u for u in row)) for v in row] for row in gram])
        gap = sum((grams[0][i][j] - grams[1][i][j]) ** 2 for i in range(5) for j in range(5))
        expected += 0.7 * gap / 25
    loss = shrinker.penalty(Step(images, labels, scores))
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert bool((gate_of(net).fc2.bias.grad != 0).any())


def test_the_samples_must_be_known() -> None:
    net, shrinker, images = gated(ManiDPConfig())
    net.train()(images)
    with pytest.raises(SalienceError, match=r"penalty\(Step\(labels=..., scores=...\)\)"):
        shrinker.penalty()


def test_a_sample_is_weighed_by_how_easy_it_is() -> None:
    losses = torch.tensor([0.0, 0.25, 0.5, 3.0])
    assert sample_weights(losses, 1.0, 0.5, 1.0).tolist() == [1.0, 0.5, 0.0, 0.0]
    assert sample_weights(losses, 2.0, 0.5, 2.0).tolist() == [1.0, 0.5625, 0.25, 0.0]


def test_relations_have_rows_of_length_one() -> None:
    a = torch.randn(4, 3, dtype=torch.float64)
    assert relations(a).norm(dim=-1).tolist() == pytest.approx([1.0] * 4)


def test_the_share_falls_as_a_cosine() -> None:
    for epoch in range(10):
        expected = (1 - 0.6) / 2 * math.cos(math.pi * (epoch + 1) / 10) + (1 + 0.6) / 2
        assert remaining(0.6, (epoch + 1) / 10) == pytest.approx(expected)
    assert (remaining(0.6, 0.0), remaining(0.6, 1.0)) == pytest.approx((1.0, 0.6))


def test_ranks_between_two_values_lie_between_them() -> None:
    values = torch.tensor([0.1, 0.5, 0.3])
    assert [ranked(values, r) for r in (0.2, 1, 1.5, 2, 3, 9)] == pytest.approx([0.5, 0.5, 0.4, 0.3, 0.1, 0.1])


def test_thresholds_follow_the_mean_saliences_of_an_epoch() -> None:
    net, shrinker, images = gated(ManiDPConfig(ratio=0.5))
    method, gate = shrinker.method, gate_of(net)
    assert set(method.gates) == {f"layer{i}.0.bn{j}" for i in (1, 2, 3) for j in (1, 2)}
    assert "no shortcut" in shrinker.refused["layer2.0.downsample.0"]
    assert "network's input" in shrinker.refused["conv1"]
    net.train()
    method.start()
    seen = []
    for part in images.split(2):
        net(part)
        seen.append(gate.recorded[0][0].detach())
        shrinker.step()
    assert gate.threshold == OFF
    method.after_epoch(1.0)
    means = sorted(torch.cat(seen).mean(dim=0).tolist(), reverse=True)
    assert gate.threshold == pytest.approx(means[1])  # half of four channels
    assert gate.seen == 0


def test_its_matrices_have_no_weight_decay() -> None:
    net, _, _ = gated(ManiDPConfig())
    decayed, free = (group["params"] for group in split_parameters(net, 0.1))
    gate = gate_of(net)
    assert any(p is gate.fc1.weight for p in free)
    assert not any(p is gate.fc1.weight for p in decayed)
    assert any(p is net.conv1.weight for p in decayed)


@pytest.mark.train
def test_a_run(tmp_path: Path) -> None:
    result = check_run(tmp_path, {"method": "manidp", "budget": {"madds": 0.6}}, epochs=LONGER)
    assert result.budget is not None
    assert 0.95 * result.budget.limit <= result.budget.reached <= 1.02 * result.budget.limit
    assert result.dynamic is not None
    assert result.dynamic.madds_std > 0
