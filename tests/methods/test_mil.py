"""Low-cost collaborative layers against loops, and in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pcshrink as pcs
from pcshrink.errors import ConfigError, NoSitesError
from pcshrink.measure.activity import activity
from pcshrink.methods.mil import MILConfig, MILGate
from testing.dynamic import EPOCHS, check_run, gated


@pytest.mark.parametrize("block", ["layer1.0", "layer2.0"])  # of stride 1 and 2
def test_a_layer_equals_one_that_runs_at_some_positions_only(block: str) -> None:
    net, _, _ = gated(MILConfig())
    net.requires_grad_(False)
    conv, norm = net.get_submodule(f"{block}.conv1"), net.get_submodule(f"{block}.bn1")
    gate = norm.pcs_gate
    assert isinstance(gate, MILGate)
    gate.norm.bias.zero_()
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    heard: list[torch.Tensor] = []
    gate.listener = heard.append
    out = norm(conv(x))
    stride, padded, ran = conv.stride[0], F.pad(x, (1, 1, 1, 1)), 0
    for b in range(2):
        for i in range(out.shape[2]):
            for j in range(out.shape[3]):
                dot = sum(
                    float(gate.branch.weight[0, c, 0, 0]) * float(x[b, c, stride * i, stride * j]) for c in range(4)
                )
                level = dot / (1 + 1e-5) ** 0.5 * float(gate.norm.weight) + float(gate.norm.bias)
                if level <= 0:  # nothing else is computed here
                    assert not out[b, :, i, j].any()
                    continue
                ran += 1
                patch = padded[b, :, stride * i : stride * i + 3, stride * j : stride * j + 3]
                values = torch.einsum("ocij,cij->o", conv.weight, patch)
                values = (values - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
                torch.testing.assert_close(out[b, :, i, j], values * level, rtol=1e-10, atol=1e-10)
    assert 0 < ran < out[:, 0].numel()
    assert int((heard[0] != 0).sum()) == ran


def test_the_cost_is_the_share_of_positions_and_the_branches() -> None:
    net, _, images = gated(MILConfig())
    found = activity(net, [images])
    heard: dict[str, torch.Tensor] = {}
    for name, module in net.named_modules():
        if isinstance(module, MILGate):
            module.listener = lambda factor, name=name: heard.update({name: factor})  # type: ignore[misc]
    with torch.no_grad():
        net(images)
    rows = {row.name: row.madds for row in pcs.profile(pcs.detach_(gated(MILConfig())[0]), images[:1]).layers}
    expected = torch.full((5,), float(sum(rows.values())), dtype=torch.float64)
    for name, factor in heard.items():
        conv = name.removesuffix(".pcs_gate").replace("bn", "conv")
        expected -= rows[conv] * (factor == 0).double().flatten(1).mean(1)
        expected += rows[conv] / 9 / net.get_submodule(conv).out_channels  # a 1 x 1 kernel for one channel
    assert found.samples.tolist() == pytest.approx(expected.tolist())
    assert found.shares["layer1.0.conv2"] == pytest.approx(float((heard["layer1.0.bn2.pcs_gate"] != 0).double().mean()))


def test_a_branch_that_is_zero_everywhere_saves_the_next_layers_reading() -> None:
    net, _, images = gated(MILConfig())
    gate = net.layer1[0].bn1.pcs_gate  # type: ignore[index]
    assert isinstance(gate, MILGate)
    nn.init.constant_(gate.norm.bias, -100.0)
    shares = activity(net, [images]).shares
    assert shares["layer1.0.conv1"] == shares["layer1.0.conv2"] == 0


def test_sparsity_is_an_extension() -> None:
    net, shrinker, images = gated(MILConfig())
    net.train()(images)
    assert float(shrinker.penalty()) == 0
    net, shrinker, images = gated(MILConfig(sparsity=0.5))
    net.train()(images)
    gates = shrinker.method.mil_gates.values()  # type: ignore[attr-defined]
    expected = sum(float(gate.recorded[0].detach().mean()) for gate in gates)
    assert float(shrinker.penalty().detach()) == pytest.approx(0.5 * expected)


def test_what_it_cannot_handle_is_named() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    with pytest.raises(NoSitesError, match=r"2: its output positions are not those of its input.*4: .*end a block"):
        pcs.attach_(net, torch.randn(2, 3, 12, 12), MILConfig())
    with pytest.raises(NoSitesError, match="method mil finds no layer"):
        pcs.attach_(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(2, 8), MILConfig())


@pytest.mark.train
def test_a_run_has_no_budget_but_a_measured_cost(tmp_path: Path) -> None:
    longer = EPOCHS | {"settle": 4}  # it learns more slowly than the others
    result = check_run(tmp_path, {"method": "mil", "sparsity": 0.01}, epochs=longer)
    assert result.budget is None
    assert result.compact["madds"] < 0.95 * result.dense["madds"]


@pytest.mark.train
@pytest.mark.parametrize("method", ["mil", "pcs-input", "truncation-input"])
def test_a_budget_is_refused_with_the_setting_there_is_instead(method: str, tmp_path: Path) -> None:
    instead = {
        "mil": "set shrink.sparsity",
        "pcs-input": "set shrink.ratio and shrink.strength",
        "truncation-input": "set shrink.ratio",
    }[method]
    with pytest.raises(ConfigError, match=f"method {method} takes no budget.*{instead} instead of shrink.budget"):
        check_run(tmp_path, {"method": method, "budget": {"madds": 0.5}}, stop=0)
    assert not (tmp_path / "whole" / "metrics.jsonl").exists()
