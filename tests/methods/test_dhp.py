"""DHP: hypernetworks and latent vectors against plain loops, weights that become plain again, a short run."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pcshrink as pcs
from pcshrink.errors import ConfigError
from pcshrink.methods.dhp import DHPConfig, HyperPruning, half_normal
from pcshrink.methods.hypernet import Hypernet
from pcshrink.methods.landing import wanted
from pcshrink.surgery.generated import find_generated
from testing.methods import Stream, attach_stream, check_short_run


def hypernets(model: nn.Module) -> dict[str, Any]:
    return dict(find_generated(model))


def stirred(seed: int = 0) -> tuple[Any, Any, torch.Tensor]:
    """The stream with hypernetworks whose parameters are all different from zero."""
    model, method, x = attach_stream(DHPConfig(), seed)
    with torch.no_grad():
        for part in hypernets(model).values():
            for parameter in part.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model, method, x


def loop_kernel(part: Hypernet, z_out: float, z_in: float, o: int, i: int) -> list[float]:
    pair = z_out * z_in + part.b0[o, i].item()
    embedded = [pair * part.w1[o, i, m].item() + part.b1[o, i, m].item() for m in range(part.w1.shape[2])]
    kernel = []
    for k in range(part.w2.shape[2]):
        total = sum(part.w2[o, i, k, m].item() * value for m, value in enumerate(embedded))
        kernel.append(total + part.b2[o, i, k].item())
    return kernel


def test_a_kernel_is_made_from_the_latent_entries_of_its_two_channels() -> None:
    model, method, _ = stirred()
    part = hypernets(model)["b"]
    z_in, z_out = method.latents["a"].tolist(), method.latents["b"].tolist()
    weight = part.weight()
    for o in range(5):
        for i in range(6):
            expected = loop_kernel(part, z_out[o], z_in[i], o, i)
            assert weight[o, i].flatten().tolist() == pytest.approx(expected, rel=1e-10)


def test_channels_in_no_group_have_latent_entries_of_their_own() -> None:
    model, method, _ = stirred()
    part = hypernets(model)["a"]
    assert part.own.shape == (3,)  # the colours
    expected = loop_kernel(part, method.latents["a"].tolist()[4], part.own.tolist()[2], 4, 2)
    assert part.weight()[4, 2].flatten().tolist() == pytest.approx(expected, rel=1e-10)
    assert all(part.shared[0] is method.latents["a"] for part in hypernets(model).values())


def test_hypernetworks_start_from_the_weights_there_are() -> None:
    torch.manual_seed(0)
    plain, x = Stream().double(), torch.randn(3, 3, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        plain.b.weight[2] = 0.0  # nothing may be divided by that
    made = pcs.attach_(copy.deepcopy(plain), x, DHPConfig()).model
    for name in ("a", "b", "d"):
        weight = hypernets(made)[name].weight()
        torch.testing.assert_close(weight, plain.get_submodule(name).weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(made.eval()(x), plain.eval()(x), rtol=1e-10, atol=1e-10)


def test_from_scratch_everything_is_drawn_as_in_the_source() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Conv2d(64, 4, 1))
    shrinker = pcs.attach_(net, torch.randn(2, 3, 9, 9), DHPConfig(start="scratch", prove=False))
    part = hypernets(shrinker.model)["2"]
    largest = math.sqrt(3 / (8 * 64 * 9))
    assert 0.99 * math.sqrt(3) < part.w1.abs().max().item() <= math.sqrt(3)
    assert 0.99 * largest < part.w2.abs().max().item() <= largest
    assert all(not bias.any() for bias in (part.b0, part.b1, part.b2))
    assert 0.7 < torch.cat(list(part.shared)).std().item() < 1.3


def test_latent_entries_start_as_normal_sizes_in_the_order_of_the_norms() -> None:
    got = half_normal(torch.tensor([3.0, 1.0, 2.0, 5.0], dtype=torch.float64)).tolist()
    for rank, value in zip([2, 0, 1, 3], got, strict=True):
        low, high = 0.0, 10.0
        while high - low > 1e-12:  # the size below which (rank + 1/2) / 4 of all normal numbers are
            middle = (low + high) / 2
            low, high = (middle, high) if math.erf(middle / math.sqrt(2)) < (rank + 0.5) / 4 else (low, middle)
        assert value == pytest.approx(low, rel=1e-9)
    assert min(half_normal(torch.rand(64)).tolist()) >= 0.1


def test_a_step_shrinks_all_latent_entries_by_the_same_and_keeps_their_signs() -> None:
    model, method, _ = attach_stream(DHPConfig(start="scratch", strength=2.0, total_steps=10), seed=3)
    before = {name: latent.tolist() for name, latent in method.latents.items()}  # type: ignore[attr-defined]
    method.start()
    method.after_step()
    for name, first in before.items():
        t = 2.0 / 10 * sum(map(abs, first)) / len(first)
        expected = [math.copysign(max(abs(z) - t, 0.0), z) for z in first]
        assert method.latents[name].tolist() == pytest.approx(expected, abs=1e-12)  # type: ignore[attr-defined]
    assert method.scores()["b"].tolist() == pytest.approx([abs(z) for z in hypernets(model)["b"].shared[1].tolist()])


def test_the_task_trains_hypernetworks_and_latent_vectors_but_no_plain_weight() -> None:
    model, method, x = attach_stream(DHPConfig())
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert not names & {"a.weight", "b.weight", "d.weight"}
    assert {"head.weight", "a.bias", "b.pcs_generated.w2"} <= names
    F.cross_entropy(model.train()(x), torch.arange(7) % 4).backward()
    assert all(bool(latent.grad.any()) for latent in method.latents.values())  # type: ignore[attr-defined]


def test_a_cut_makes_the_weights_plain() -> None:
    model, method, x = stirred()
    shrinker = pcs.Shrinker(model, method.coupling, method)
    method.start()
    plan = shrinker.plan()
    shrinker.mask_(plan)
    small: Any = pcs.compact(model, plan, x)
    assert (small.a.out_channels, small.b.out_channels) == (3, 3)
    assert pcs.verify(model, small, x) < 1e-12
    assert find_generated(small) == {}
    assert small.b.weight.requires_grad


def test_when_the_phase_is_over_the_weights_are_plain_and_trained() -> None:
    model, method, x = stirred()
    method.start()
    method.after_epoch(1.0)
    expected = model.eval()(x)
    assert method.finish()
    assert find_generated(model) == {}
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)
    assert all(p.requires_grad for p in model.parameters())
    assert {name: int(keep.sum()) for name, keep in method.keep().items()} == {"a": 3, "b": 3}


def test_detaching_gives_the_network_back_with_its_names() -> None:
    torch.manual_seed(0)
    plain, x = Stream().double().eval(), torch.randn(3, 3, 6, 6, dtype=torch.float64)
    made = pcs.attach_(copy.deepcopy(plain), x, DHPConfig()).model
    pcs.detach_(made)
    assert list(made.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(made(x), plain(x), rtol=1e-10, atol=1e-10)


def test_a_budget_is_met_even_if_all_latent_entries_are_the_same() -> None:
    model, method, x = attach_stream(DHPConfig(total_steps=8, min_channels=1))
    shrinker = pcs.Shrinker(model, method.coupling, method)
    assert isinstance(method, HyperPruning)
    with torch.no_grad():
        for latent in method.latents.values():
            latent.fill_(1.0)
    target = pcs.set_budget(shrinker, x, madds=0.5)
    method.start()
    for _ in range(8):
        method.after_step()
    method.after_epoch(1.0)
    assert target.cost({name: int(keep.sum()) for name, keep in method.keep().items()}) <= target.limit


def test_the_cost_falls_as_it_should_while_steps_are_taken() -> None:
    model, method, x = attach_stream(DHPConfig(total_steps=400, min_channels=1, start="scratch"))
    shrinker = pcs.Shrinker(model, method.coupling, method)
    target = pcs.set_budget(shrinker, x, madds=0.4)
    method.start()
    whole, left = target.cost({}), []
    for _ in range(300):
        method.after_step()
        left.append(target.cost({name: max(int((z > 0).sum()), 1) for name, z in method.scores().items()}))
    allowed = [whole + (target.limit - whole) * wanted((step + 1) / 400) for step in range(300)]
    steps = (120, 200, 280)  # one channel is a fifth of a group here
    assert all(abs(left[step] - allowed[step]) < 0.25 * whole for step in steps)
    assert left[280] < left[120] < whole


def test_layers_without_a_hypernetwork_are_named() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    with pytest.raises(ConfigError, match=r"makes the weights of plain two-dimensional convolutions.*the groups are 0"):
        pcs.attach_(net, torch.randn(2, 6), DHPConfig())
    both = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 6),
        nn.ReLU(),
        nn.Linear(6, 4),
    )
    shrinker = pcs.attach_(both, torch.randn(2, 3, 9, 9), DHPConfig())
    assert [g.name for g in shrinker.groups] == ["0"]
    assert shrinker.refused["4"] == "no plain convolution, whose weight dhp could make, writes or reads it"
    assert shrinker.method.concerns() == [f"group 4 stays whole: {shrinker.refused['4']}"]


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"DHPConfig\.embedding must be a whole number of at least 1; got 0"):
        DHPConfig(embedding=0)


@pytest.mark.train
def test_short_run(tmp_path: Path) -> None:
    check_short_run(tmp_path, "dhp", compact_every=1)
