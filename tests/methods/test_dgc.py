"""Dynamic group convolution against loops, and in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pcshrink.errors import NoSitesError
from pcshrink.methods.dgc import DGCConfig, DGCGate, highest, switched_off
from testing.dynamic import check_run, gated


def gate_of(net: torch.nn.Module) -> DGCGate:
    gate = net.layer1[0].conv1.pcs_gate  # type: ignore[index, union-attr]
    assert isinstance(gate, DGCGate)
    return gate


@pytest.mark.parametrize("own_norm", [False, True])
def test_a_layer_equals_heads_that_really_read_some_channels_only(own_norm: bool) -> None:
    net, _, _ = gated(DGCConfig(heads=2, squeeze=2, own_norm=own_norm))
    net.requires_grad_(False)
    conv, gate = net.layer1[0].conv1, gate_of(net)  # type: ignore[index]
    conv.bias = torch.nn.Parameter(torch.randn(4, dtype=torch.float64), requires_grad=False)
    gate.kept = 3
    x = torch.rand(3, 4, 5, 5, dtype=torch.float64)
    heard: list[torch.Tensor] = []
    gate.listener = heard.append
    out = conv(x)
    shares = []
    for b in range(3):
        image = x[b : b + 1]
        if gate.norm is not None:
            image = F.relu(gate.norm(image))
        pooled = [float(image[0, c].mean()) for c in range(4)]
        ran = 0
        for head in range(2):
            hidden = [
                max(sum(float(gate.fc1.weight[head * 4 + h, c]) * pooled[c] for c in range(4)), 0.0) for h in range(4)
            ]
            m = []
            for c in range(4):
                row = gate.fc2.weight[head * 4 + c, :, 0]
                z = sum(float(w) * h for w, h in zip(row, hidden, strict=True))
                m.append(max(z + float(gate.fc2.bias[head * 4 + c]), 0.0))  # type: ignore[index]
            limit = min(m)  # one channel of four is off
            reads = [c for c in range(4) if m[c] > limit]
            ran += len(reads)
            for filter_ in (head, head + 2):  # every second one
                kernel = conv.weight[filter_ : filter_ + 1, reads]
                scaled = image[:, reads] * torch.tensor([m[c] for c in reads], dtype=x.dtype)[:, None, None]
                expected = F.conv2d(scaled, kernel, padding=1)[0, 0] + conv.bias[filter_]
                torch.testing.assert_close(out[b, filter_], expected, rtol=1e-10, atol=1e-10)
        shares.append(ran / 8)
    assert heard[0].flatten(1).mean(1).tolist() == pytest.approx(shares)


def test_heads_one_by_one_equal_one_convolution_in_groups() -> None:
    net, _, _ = gated(DGCConfig(heads=4), widths=(8, 8, 8))
    conv, gate = net.layer1[0].conv1, gate_of(net)  # type: ignore[index]
    gate.kept = 5
    x = torch.rand(3, 8, 5, 5, dtype=torch.float64, requires_grad=True)
    m = gate(x.mean(dim=(2, 3)))
    read = (x[:, None] * (m * highest(m, 5))[..., None, None]).flatten(1, 2)
    kernel = conv.weight.unflatten(0, (-1, 4)).transpose(0, 1).flatten(0, 1)
    grouped = F.conv2d(read, kernel, padding=1, groups=4).unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2)
    out, weights = conv(x), torch.randn(3, 8, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(out, grouped, rtol=1e-12, atol=1e-12)
    inputs = (x, conv.weight, gate.fc1.weight)
    own, expected = (torch.autograd.grad((y * weights).sum(), inputs) for y in (out, grouped))
    torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-12)


def test_equals_of_the_lowest_are_switched_off_too() -> None:
    m = torch.tensor([[0.0, 0.0, 2.0, 3.0], [1.0, 4.0, 2.0, 3.0]])
    assert highest(m, 3).tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]]
    assert highest(m, 4).tolist() == [[1, 1, 1, 1]] * 2


def test_channels_are_switched_off_by_the_schedule() -> None:
    for step in range(101):
        t = 0.75 * step / 100  # the end of the phase is three quarters of the training
        expected = 0 if t <= 1 / 12 else round(17 * 1.5 * (t - 1 / 12))
        assert switched_off(17, step / 100) == expected
    assert switched_off(17, 1.0) == 17


def test_the_loss_is_the_mean_salience_before_anything_is_switched_off() -> None:
    net, shrinker, images = gated(DGCConfig(heads=2, l1=0.5))
    shrinker.method.steps = shrinker.config.total_steps
    shrinker.method.start()
    assert gate_of(net).kept == 2
    net.train()(images)
    expected = 0.0
    for gate in shrinker.method.dgc_gates.values():  # type: ignore[attr-defined]
        (m,) = gate.recorded
        expected += sum(float(m[:, head].detach().mean()) for head in range(2))
    assert float(shrinker.penalty().detach()) == pytest.approx(0.5 * expected)


def test_where_heads_are() -> None:
    _, shrinker, _ = gated(DGCConfig(heads=4))
    assert "layer2.0.downsample.0" in shrinker.method.gates
    assert "network's input" in shrinker.refused["conv1"]
    with pytest.raises(NoSitesError, match="4 output channels do not divide into heads: 3"):
        gated(DGCConfig(heads=3))
    shrinker.method.start()
    shrinker.method.steps = shrinker.config.total_steps
    shrinker.aim({"layer1.0.conv1": 3})  # what writes the channels that the next layer reads
    assert shrinker.method.gates["layer1.0.conv2"].kept == 3  # type: ignore[comparison-overlap]


@pytest.mark.train
def test_a_run(tmp_path: Path) -> None:
    result = check_run(tmp_path, {"method": "dgc", "budget": {"madds": 0.6}}, stop=100)
    assert result.budget is not None
    assert 0.93 * result.budget.limit <= result.budget.reached <= 1.01 * result.budget.limit
