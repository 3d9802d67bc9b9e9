"""The measured cost of gated networks against really indexed convolutions, sample by sample."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import ConfigError
from pcshrink.measure.activity import activity
from pcshrink.methods.fbs import FBSConfig, FBSGate
from pcshrink.methods.pcs.by_input import ByInputConfig
from pcshrink.surgery.gates import find_gates
from testing.dynamic import gated
from testing.nets import CASES


class Indexed:
    """Runs a gated residual network on one image with the chosen filters only, and counts."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.madds = net, 0

    def layer(self, prefix: str, conv: str, norm: str, x: Tensor, have: list[int]) -> tuple[Tensor, list[int]]:
        """Convolution, norm and gate of the channels ``have``; what comes out, and which channels these are."""
        weights, scale = self.net.get_submodule(prefix + conv), self.net.get_submodule(prefix + norm)
        gate = find_gates(self.net)[prefix + norm]
        assert isinstance(gate, FBSGate)
        size = torch.zeros(weights.in_channels, dtype=x.dtype)
        size[have] = x.abs().mean(dim=(2, 3))[0]
        salience = F.relu(gate.predictor(size[None]))[0]
        self.madds += gate.predictor.weight.numel()
        ranked = sorted(range(len(salience)), key=lambda c: -float(salience[c]))
        kept = sorted(c for c in ranked[: gate.kept] if float(salience[c]) > 0)
        kernel = weights.weight[kept][:, have]
        out = F.conv2d(x, kernel, None, weights.stride, weights.padding)
        self.madds += out.numel() * kernel[0].numel()
        out = F.batch_norm(
            out, scale.running_mean[kept], scale.running_var[kept], scale.weight[kept], scale.bias[kept], eps=scale.eps
        )
        return out * salience[kept][:, None, None], kept

    def __call__(self, x: Tensor) -> Tensor:
        x, have = self.layer("", "conv1", "bn1", x, list(range(x.shape[1])))
        x = F.relu(x)
        for stage in ("layer1.0.", "layer2.0.", "layer3.0."):
            y, inner = self.layer(stage, "conv1", "bn1", x, have)
            y, wrote = self.layer(stage, "conv2", "bn2", F.relu(y), inner)
            if stage != "layer1.0.":
                x, have = self.layer(stage + "downsample.", "0", "1", x, have)
            either = sorted(set(have) | set(wrote))
            total = torch.zeros(1, len(either), *y.shape[2:], dtype=y.dtype)
            total[:, [either.index(c) for c in have]] += x
            total[:, [either.index(c) for c in wrote]] += y
            x, have = F.relu(total), either
        fc = self.net.fc
        self.madds += fc.out_features * len(have)
        return F.linear(x.mean(dim=(2, 3)), fc.weight[:, have], fc.bias)


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.8])
def test_the_count_is_that_of_really_indexed_convolutions(ratio: float) -> None:
    net, shrinker, images = gated(FBSConfig(ratio=ratio, min_channels=1))
    shrinker.method.steps = shrinker.config.total_steps
    shrinker.method.start()
    found = activity(net, [images])
    for number, image in enumerate(images):
        indexed = Indexed(net)
        with torch.no_grad():
            torch.testing.assert_close(indexed(image[None]), net(image[None]), rtol=1e-10, atol=1e-10)
        assert float(found.samples[number]) == pytest.approx(indexed.madds, abs=1e-6)
    assert found.madds < found.dense.madds
    assert found.spread == pytest.approx(float(found.samples.std(correction=0)))
    assert set(found.shares) == {n for n, m in net.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))} - {
        f"{name}.pcs_gate.predictor" for name in find_gates(net)
    }


def test_open_gates_cost_the_whole_network_and_themselves() -> None:
    net, _, images = gated(FBSConfig())
    for gate in find_gates(net).values():
        nn.init.ones_(gate.predictor.bias)  # type: ignore[union-attr, arg-type]
        nn.init.zeros_(gate.predictor.weight)  # type: ignore[union-attr, arg-type]
    found = activity(net, images.split(2))
    whole = pcs.profile(net, images[:1])
    assert found.samples.tolist() == [whole.madds] * 5
    assert (found.params, found.mem_access) == (whole.params, whole.mem_access)
    assert set(found.shares.values()) == {1.0}
    paper = found.recounted(net, images[:1], "paper")
    assert paper.madds == pcs.profile(net, images[:1], "paper").madds
    assert activity(net, [images], earlier=found).madds == found.madds


def test_input_dependent_shrinking_is_measured_by_its_zero_saliences() -> None:
    net, shrinker, images = gated(ByInputConfig())
    with torch.no_grad():
        for gate in find_gates(net).values():
            gate.generator.fc2.weight *= 40  # type: ignore[union-attr, operator]
        heard: dict[str, Tensor] = {}
        for name, gate in find_gates(net).items():
            gate.listener = lambda factor, name=name: heard.update({name: factor})  # type: ignore[misc]
        net(images)
        for gate in find_gates(net).values():
            gate.listener = None
    assert any(bool((factor == 0).any()) for factor in heard.values())
    found = activity(net, [images])
    inner = heard["layer1.0.bn1"] != 0
    stream = heard["bn1"] != 0
    expected = stream.double().mean(1) * inner.double().mean(1)
    assert found.shares["layer1.0.conv1"] == pytest.approx(float(expected.mean()))
    with pytest.raises(ConfigError, match="no channel can be cut"):
        shrinker.plan({g.name: torch.arange(g.channels) > 0 for g in shrinker.groups})


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(case.shapes) == 1])
def test_every_graph_is_followed(name: str) -> None:
    """With open gates everything is needed; with most channels off less is, wherever a gate sits."""
    case = CASES[name]
    net, images = case.model(), case.inputs()
    pcs.attach_(net, images, pcs.ShrinkConfig(prove=False))
    assert activity(net, [images]).share >= 1
    for gate in find_gates(net).values():
        gate.restrict([0], [])
    assert activity(net, [images]).shares != {}
    assert activity(net, [images]).madds < pcs.profile(net, images).madds


def test_it_needs_images() -> None:
    net, _, _ = gated(FBSConfig())
    with pytest.raises(ConfigError, match="at least one image"):
        activity(net, [])
