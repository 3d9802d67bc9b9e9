"""Soft filter pruning: norms and zeros against plain loops, filters that come back, a short run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import ConfigError
from pcshrink.methods.sfp import SFPConfig
from testing.methods import attach_stream, check_short_run
from testing.nets import CASES


def test_a_channel_is_worth_the_norm_of_all_that_writes_it() -> None:
    model, method, _ = attach_stream(SFPConfig())
    for c in range(6):
        total = sum(w**2 for layer in (model.a, model.d) for w in layer.weight[c].flatten().tolist())
        assert float(method.scores()["a"][c]) == pytest.approx(math.sqrt(total), rel=1e-12)
    for c in range(5):
        total = sum(w**2 for w in model.b.weight[c].flatten().tolist())
        assert float(method.scores()["b"][c]) == pytest.approx(math.sqrt(total), rel=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_the_smallest_filters_are_zero_at_their_readers_after_an_epoch(training: bool) -> None:
    model, method, x = attach_stream(SFPConfig(ratio=0.5))
    model.train()
    for _ in range(3):
        model(x)  # norms that know their inputs
    order = {name: scores.argsort() for name, scores in method.scores().items()}
    method.after_epoch(0.5)
    seen = []
    for reader in (model.b, model.d, model.head):
        reader.register_forward_pre_hook(lambda _module, args: seen.append(args[0]))
    model.train(training)(x)
    for values, group, k in zip(seen, ("a", "b", "a"), (3, 2, 3), strict=True):
        for rank, c in enumerate(order[group].tolist()):
            assert bool((values[:, c] == 0).all()) is (rank < k)


def test_shifts_stay_if_they_are_to() -> None:
    model, method, _ = attach_stream(SFPConfig(shifts="keep"))
    before = model.na.bias.clone()
    method.after_epoch(0.5)
    assert torch.equal(model.na.bias, before)
    assert int((model.a.weight.flatten(1).abs().sum(1) == 0).sum()) == 3


def test_filters_grow_back_up_to_the_smallest_kept_one_and_may_be_kept_in_the_end() -> None:
    model, method, x = attach_stream(SFPConfig(ratio=0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train(steps: int) -> None:
        for _ in range(steps):
            F.cross_entropy(model.train()(x), torch.arange(7) % 4).backward()
            optimizer.step()
            optimizer.zero_grad()
            method.after_step()

    train(5)
    chosen = method.choose()
    smallest = {
        name: [min(row[~chosen[name]].tolist()) for row in filters.norms()] for name, filters in method.filters.items()
    }
    method.after_epoch(0.5)
    train(8)
    for name, filters in method.filters.items():
        grown = filters.norms()[:, chosen[name]]
        assert bool((grown > 0).any())
        for row, limit in zip(grown, smallest[name], strict=True):
            assert max(row.tolist()) <= limit * (1 + 1e-12)
    with torch.no_grad():
        model.b.weight[~chosen["b"]] *= 1e-3  # the others are no longer needed
    assert bool(method.keep()["b"][chosen["b"]].all())


def test_nothing_is_cut_before_the_end_and_the_final_choice_is_exact() -> None:
    model, method, x = attach_stream(SFPConfig(ratio=0.5))
    method.start()
    method.after_epoch(1.0)
    assert not any(bool(flags.any()) for flags in method.gone().values())
    shrinker = pcs.Shrinker(model, method.coupling, method)
    plan = shrinker.plan()
    assert {name: len(kept) for name, kept in plan.groups.items()} == {"a": 3, "b": 3}
    small = pcs.compact(model, plan, x)
    assert pcs.verify(model, small, x) < 1e-12  # zero filters add nothing


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_a_weight_that_is_computed_is_refused_by_name() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1))
    nn.utils.parametrize.register_parametrization(net[2], "weight", Doubled())
    x = torch.randn(2, 3, 9, 9)
    with pytest.raises(ConfigError, match=r"method sfp works on filters, but the weight of '2'.*exclude: \['2'\]"):
        pcs.attach_(net, x, SFPConfig())
    assert [g.name for g in pcs.attach_(net, x, SFPConfig(exclude=("2",))).groups] == ["0"]


@pytest.mark.parametrize("name", ["Depthwise", "FewGroups", "Pixels", "Transposed", "Transformer", "Dense"])
def test_zero_filters_are_zero_channels_in_all_kinds_of_layers(name: str) -> None:
    case = CASES[name]
    shrinker = pcs.attach_(case.model(torch.float64), case.inputs(torch.float64), SFPConfig())
    shrinker.method.after_epoch(1.0)
    small = pcs.compact(shrinker.model, shrinker.plan(), case.inputs(torch.float64))
    assert pcs.verify(shrinker.model, small, case.inputs(torch.float64)) < 1e-12


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"SFPConfig\.shifts must be one of zero, keep; got 'half'"):
        SFPConfig(shifts="half")  # type: ignore[arg-type]


@pytest.mark.train
def test_short_run(tmp_path: Path) -> None:
    check_short_run(tmp_path, "sfp")
