"""Channel gating against loops, and in a run."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import pcshrink as pcs
from pcshrink.errors import ConfigError, NoSitesError
from pcshrink.measure.activity import activity
from pcshrink.methods.cgnet import OPEN, CGNetConfig, CGNetGate, shift_at
from testing.dynamic import check_run, gated


def gate_of(net: torch.nn.Module) -> CGNetGate:
    gate = net.layer1[0].conv1.pcs_gate  # type: ignore[index, union-attr]
    assert isinstance(gate, CGNetGate)
    gate.shift = 0.0
    return gate


def test_a_layer_equals_the_loop() -> None:
    net, _, _ = gated(CGNetConfig(parts=2))
    net.requires_grad_(False)
    conv, gate = net.layer1[0].conv1, gate_of(net)  # type: ignore[index]
    gate.norm.running_mean.normal_()
    gate.norm.running_var.uniform_(0.5, 2)
    x = torch.rand(2, 4, 4, 4, dtype=torch.float64)
    heard: list[torch.Tensor] = []
    gate.listener = heard.append
    out = conv(x)
    padded = F.pad(x, (1, 1, 1, 1))
    ran = on_count = 0
    for b, c, i, j in itertools.product(range(2), range(4), range(4), range(4)):
        products = conv.weight[c] * padded[b, :, i : i + 3, j : j + 3]
        terms = [sum(float(v) for v in products[k].flatten()) for k in range(4)]
        base = sum(terms[:2]) if c < 2 else sum(terms[2:])  # its own part of the input channels
        mean, var = float(gate.norm.running_mean[c]), float(gate.norm.running_var[c])
        on = (base - mean) / (var + 1e-5) ** 0.5 > float(gate.threshold[c])
        ran += 9 * (4 if on else 2)
        on_count += on
        assert float(out[b, c, i, j]) == pytest.approx(sum(terms) if on else base, abs=1e-10)
    assert 0 < on_count < 128
    assert float(heard[0].mean()) * 128 * 36 == pytest.approx(ran)


def test_the_step_has_the_gradient_of_a_sigmoid_where_it_is_on() -> None:
    for sparse in (True, False):
        net, _, _ = gated(CGNetConfig(parts=2, sparse_backward=sparse))
        gate = gate_of(net)
        partial = torch.randn(3, 4, 2, 2, dtype=torch.float64, requires_grad=True)
        on = gate(partial)
        assert set(on.flatten().tolist()) <= {0.0, 1.0}
        height = (partial.detach() / (1 + 1e-5) ** 0.5) - gate.threshold.detach()[:, None, None]
        slope = torch.sigmoid(2 * height) * torch.sigmoid(-2 * height) * 2
        on.sum().backward()
        expected = slope * (height > 0) if sparse else slope
        torch.testing.assert_close(partial.grad, expected / (1 + 1e-5) ** 0.5, rtol=1e-9, atol=1e-9)
        assert gate.threshold.grad is not None
        torch.testing.assert_close(gate.threshold.grad, -expected.sum(dim=(0, 2, 3)), rtol=1e-9, atol=1e-9)


def test_thresholds_are_pulled_to_their_target() -> None:
    net, shrinker, images = gated(CGNetConfig(parts=2, threshold=0.7, pull=0.5))
    net.train()(images)
    gates = shrinker.method.cgnet_gates.values()  # type: ignore[attr-defined]
    expected = sum((float(t) - 0.7) ** 2 for gate in gates for t in gate.threshold.detach())
    assert float(shrinker.penalty().detach()) == pytest.approx(0.5 * expected)


def test_the_shift_rises_so_that_what_is_off_grows_evenly() -> None:
    normal = torch.distributions.Normal(0.0, 1.0)
    off = [float(normal.cdf(torch.tensor(shift_at(0.5, p / 4)))) for p in range(5)]
    steps = [b - a for a, b in itertools.pairwise(off)]
    assert steps == pytest.approx([steps[0]] * 4, rel=1e-3)
    assert shift_at(0.5, 0.0) == pytest.approx(OPEN)


def test_all_off_costs_one_part_and_all_on_everything() -> None:
    net, _, images = gated(CGNetConfig(parts=4))
    dense = pcs.profile(pcs.detach_(gated(CGNetConfig(parts=4))[0]), images[:1])
    inner = sum(row.madds for row in dense.layers if row.name.startswith("layer") and "downsample" not in row.name)
    for shift, share in ((1e3, 0.25), (-1e3, 1.0)):
        for module in net.modules():
            if isinstance(module, CGNetGate):
                module.shift = shift
        assert activity(net, [images]).madds == pytest.approx(dense.madds - (1 - share) * inner)


def test_layers_that_do_not_divide_stay_whole_with_the_reason() -> None:
    with pytest.raises(NoSitesError, match="4 and 4 channels do not divide into parts: 3"):
        gated(CGNetConfig(parts=3))
    _, shrinker, _ = gated(CGNetConfig(parts=4), widths=(4, 6, 8))
    assert "do not divide into parts: 4" in shrinker.refused["layer2.0.conv1"]
    assert set(shrinker.method.gates) == {"layer1.0.conv1", "layer1.0.conv2", "layer3.0.conv2"}
    with pytest.raises(ConfigError, match="cannot aim at widths"):
        shrinker.aim({})


@pytest.mark.train
def test_a_run(tmp_path: Path) -> None:
    result = check_run(tmp_path, {"method": "cgnet", "budget": {"madds": 0.6}})
    assert result.budget is not None
    assert 0.94 * result.budget.limit <= result.budget.reached <= 1.03 * result.budget.limit


@pytest.mark.train
def test_a_budget_below_the_base_path_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"method cgnet cannot reach .*; the smallest possible here is about"):
        check_run(tmp_path, {"method": "cgnet", "parts": 2, "budget": {"madds": 0.3}}, stop=0)
    assert not (tmp_path / "whole" / "metrics.jsonl").exists()
