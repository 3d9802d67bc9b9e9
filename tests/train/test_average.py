"""The running average of the weights, and the statistics of its norms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.surgery.gates import find_gates
from pcshrink.train.average import Average
from testing.small_net import small_net


def test_the_average_follows_weights_slowly_and_buffers_at_once() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    average = Average(net, 0.9, age=100)
    with torch.no_grad():
        net[0].weight.add_(1.0)
        net[1].running_mean.add_(5.0)  # type: ignore[union-attr, operator]
    mean = average.model
    before = mean[0].weight.clone()  # type: ignore[index]
    average.update(net)
    assert torch.allclose(mean[0].weight - before, torch.full((2, 2), 0.1), atol=1e-6)  # type: ignore[index]
    assert torch.equal(mean[1].running_mean, net[1].running_mean)  # type: ignore[index, arg-type]


def test_a_young_average_follows_faster() -> None:
    net = torch.nn.Linear(2, 2)
    young, old = Average(net, 0.99), Average(net, 0.99, age=10_000)
    with torch.no_grad():
        net.weight.add_(1.0)
    for average in (young, old):
        average.update(net)
    assert float((net.weight - young.model.weight).detach().mean()) == pytest.approx(0.1, abs=1e-6)  # type: ignore[operator]
    assert float((net.weight - old.model.weight).detach().mean()) == pytest.approx(0.99, abs=1e-6)  # type: ignore[operator]
    assert young.age == 1


def test_norms_get_the_statistics_of_the_averaged_weights() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    average = Average(net, 0.9)
    batches = [torch.randn(8, 1, 6, 6) for _ in range(3)]
    average.recalibrate(batches)
    norm = average.model[1]  # type: ignore[index]
    for channel in range(3):
        maps = [net[0](batch)[:, channel].detach().flatten() for batch in batches]
        mean, var = sum(m.mean() for m in maps) / 3, sum(m.var() for m in maps) / 3
        assert float(norm.running_mean[channel]) == pytest.approx(float(mean), abs=1e-5)
        assert float(norm.running_var[channel]) == pytest.approx(float(var), abs=1e-5)
    assert norm.momentum == 0.1
    assert not any(module.training for module in average.model.modules())
    assert torch.equal(net[1].running_mean, torch.zeros(3))  # type: ignore[arg-type]


def test_gates_do_not_take_what_recalibrates_for_training() -> None:
    net = small_net()
    shrinker = pcs.attach_(net, torch.randn(2, 3, 16, 16))
    average = Average(shrinker.model, 0.9)
    before = {name: gate.state_dict() for name, gate in find_gates(average.model).items()}
    running = {name: state["running"].clone() for name, state in before.items()}
    average.recalibrate([torch.randn(8, 3, 16, 16)])
    for name, gate in find_gates(average.model).items():
        assert torch.equal(gate.state_dict()["running"], running[name])
        assert not gate.recorded  # type: ignore[attr-defined]
