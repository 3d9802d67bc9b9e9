"""Hinge: decomposition, norms and proximal steps against plain loops, refusals, a short run."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import ConfigError, NoSitesError, ShrinkWarning
from pcshrink.methods.hinge import HingeConfig, half
from pcshrink.methods.proximal import soft
from testing.methods import Stream, attach_stream, check_short_run


def loop_minimiser(size: float, t: float, power: float, scale: float) -> float:
    """The x that minimises scale (x - size)^2 + t x^power, by looking everywhere and then more closely."""
    low, high = 0.0, size
    for _ in range(12):
        points = [low + (high - low) * i / 400 for i in range(401)]
        best = min(points, key=lambda x: scale * (x - size) ** 2 + t * x**power)
        step = (high - low) / 400
        low, high = max(best - step, 0.0), min(best + step, size)
    zero_is_better = scale * size**2 < scale * (best - size) ** 2 + t * best**power
    return 0.0 if zero_is_better else best


@pytest.mark.parametrize("t", [0.01, 0.3, 1.0])
def test_the_proximal_steps_are_minimisers(t: float) -> None:
    sizes = [0.05, 0.2, 0.5, 1.0, 3.0]
    norms = torch.tensor(sizes, dtype=torch.float64)
    for size, moved in zip(sizes, (soft(norms, t) * norms).tolist(), strict=True):
        assert moved == pytest.approx(loop_minimiser(size, t, 1.0, 0.5), abs=1e-6)
    for size, moved in zip(sizes, (half(norms, t) * norms).tolist(), strict=True):
        assert moved == pytest.approx(loop_minimiser(size, t, 0.5, 1.0), abs=1e-6)


def test_a_norm_of_zero_stays_zero() -> None:
    zero = torch.zeros(2)
    assert bool((soft(zero, 0.1) == 0).all())
    assert bool((half(zero, 0.1) == 0).all())


def test_the_split_network_computes_the_same() -> None:
    torch.manual_seed(0)
    plain, x = Stream().double(), torch.randn(3, 3, 6, 6, dtype=torch.float64)
    split = pcs.attach_(copy.deepcopy(plain), x, HingeConfig()).model
    assert [name for name, part in split.named_modules() if name.endswith("basis")] == ["b.basis", "d.basis"]
    torch.testing.assert_close(split.eval()(x), plain.eval()(x), rtol=1e-12, atol=1e-12)


def test_a_rank_is_worth_what_it_gives_to_all_outputs_at_first_a_singular_value() -> None:
    torch.manual_seed(0)
    plain = Stream().double()
    expected = torch.linalg.svdvals(plain.d.weight.detach().flatten(1))
    shrinker = pcs.attach_(plain, torch.randn(2, 3, 6, 6, dtype=torch.float64), HingeConfig())
    scores = shrinker.method.scores()["d.basis"]
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-12)
    mix: Any = shrinker.model.get_submodule("d.mix")
    for rank, score in enumerate(scores.tolist()):
        assert score == pytest.approx(math.sqrt(sum(w**2 for w in mix.weight[:, rank].flatten().tolist())), rel=1e-12)


@pytest.mark.parametrize("norm", ["l1", "l1/2"])
def test_a_step_shrinks_every_column_of_the_mixture(norm: Any) -> None:
    model, method, _ = attach_stream(HingeConfig(norm=norm, strength=2.0, total_steps=10))
    mix: Any = model.get_submodule("b.mix")
    before = mix.weight.detach().clone()
    sizes = [math.sqrt(sum(w**2 for w in before[:, rank].flatten().tolist())) for rank in range(5)]
    mean = sum(sizes) / 5
    method.start()
    method.after_step()
    for rank, size in enumerate(sizes):
        t = 2.0 / 10 * (mean if norm == "l1" else mean**1.5)
        left = loop_minimiser(size, t, *((1.0, 0.5) if norm == "l1" else (0.5, 1.0)))
        assert torch.allclose(mix.weight[:, rank], before[:, rank] * (left / size), atol=1e-6)


def test_ranks_leave_both_convolutions_and_no_width_changes() -> None:
    model, method, x = attach_stream(HingeConfig(ratio=0.5, total_steps=4, strength=1e-6))
    shrinker = pcs.Shrinker(model, method.coupling, method)
    method.start()
    worth = method.scores()["d.basis"]
    for _ in range(4):
        method.after_step()
    method.after_epoch(1.0)
    assert method.gone()["d.basis"].tolist() == (worth < worth.sort().values[-3]).tolist()
    small: Any = pcs.compact(model, shrinker.plan(), x)
    assert (small.d.basis.out_channels, small.d.mix.in_channels, small.d.mix.out_channels) == (3, 3, 6)
    assert small.nd.num_features == 6
    assert pcs.verify(model, small, x) < 1e-12  # what leaves was at zero before


def test_a_budget_is_a_share_of_the_network_before_it_was_split() -> None:
    torch.manual_seed(0)
    model, x = Stream(), torch.randn(2, 3, 6, 6)
    whole = pcs.profile(model, x).madds
    shrinker = pcs.attach_(model, x, HingeConfig(min_channels=1))
    with pytest.warns(ShrinkWarning, match="a is not split"):
        target = pcs.set_budget(shrinker, x, madds=0.6)
    assert target.dense == whole
    assert target.cost({}) > whole  # two convolutions with all ranks cost more than the one
    assert target.cost({g.name: g.channels - g.k for g in shrinker.groups}) <= 0.6 * whole


def test_layers_that_stay_whole_are_named_with_the_reason() -> None:
    shrinker = pcs.attach_(Stream(), torch.randn(2, 3, 6, 6), HingeConfig(exclude=("d",)))
    assert shrinker.refused["a"] == "a 1 x 1 convolution is a mixture already"
    assert shrinker.refused["d"] == "excluded"
    assert shrinker.refused["b.mix"] == "hinge cuts ranks only"
    assert shrinker.method.concerns() == [
        "a is not split: a 1 x 1 convolution is a mixture already",
        "d is not split: excluded",
    ]
    assert [g.name for g in shrinker.groups] == ["b.basis"]


def test_a_network_without_anything_to_split_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(), nn.Conv2d(4, 4, 1))
    why = (
        r"none that it can split\. 0: a convolution in groups has no common basis; 2: a 1 x 1 convolution is a mixture"
    )
    with pytest.raises(ConfigError, match=why):
        pcs.attach_(net, torch.randn(2, 4, 6, 6), HingeConfig())
    with pytest.raises(NoSitesError, match="the pattern 'nothing' matches no convolution"):
        pcs.attach_(Stream(), torch.randn(2, 3, 6, 6), HingeConfig(exclude=("nothing",)))


class Odd(nn.Module):
    """Strides, dilation, padding by reflection and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="reflect")
        self.b = nn.Conv2d(8, 4, (3, 1), dilation=(2, 1), padding="same")

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x).relu())
        return out


def test_saved_networks_come_back_with_their_ranks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 12)
    plain = Odd()
    expected = plain(x).detach()
    shrinker = pcs.attach_(plain, x, HingeConfig(total_steps=1))
    torch.testing.assert_close(shrinker.model(x), expected, rtol=1e-4, atol=1e-5)
    shrinker.method.after_epoch(1.0)
    plan = shrinker.plan()
    small = pcs.compact(shrinker.model, plan, x, gates="fold")
    pcs.save(tmp_path / "small", small, plan)
    loaded = pcs.load(tmp_path / "small", model=Odd())
    assert torch.equal(loaded(x), small(x))


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"HingeConfig\.norm must be one of l1, l1/2; got 'l2'"):
        HingeConfig(norm="l2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"HingeConfig\.least must be a number above 0 and below 1; got 2"):
        HingeConfig(least=2)


@pytest.mark.train
def test_short_run(tmp_path: Path) -> None:
    check_short_run(tmp_path, "hinge", min_channels=1)
