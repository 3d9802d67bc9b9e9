"""A shrinker by itself: groups and their widths, state, budgets, gates that become constant."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError
from pcshrink.methods.truncation import TruncationConfig
from testing.nets import randomise_
from testing.small_net import EXAMPLE, small_net


@pytest.mark.parametrize("config", [pcs.ShrinkConfig(), TruncationConfig()], ids=["pcs", "truncation"])
def test_k_set_by_hand_takes_effect_at_once_and_is_kept(config: MethodConfig) -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, config)
    assert [int(chosen.sum()) for chosen in shrinker.selected().values()] == [8, 8, 16, 16]
    shrinker.groups[1].k = 3
    assert [int(chosen.sum()) for chosen in shrinker.selected().values()] == [8, 3, 16, 16]
    again = pcs.attach_(small_net(), EXAMPLE, config)
    again.load_state_dict(shrinker.state_dict())
    assert [group.k for group in again.groups] == [8, 3, 16, 16]
    shrinker.aim({shrinker.groups[0].name: 10, shrinker.groups[2].name: 32})
    assert [int(chosen.sum()) for chosen in shrinker.selected().values()] == [6, 0, 0, 0]
    assert len(shrinker.plan(cut="selected").groups[shrinker.groups[0].name]) == 10


def test_state_of_other_settings_is_refused() -> None:
    first = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=10))
    second = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=20))
    with pytest.raises(pcs.ShrinkError, match="total_steps"):
        second.load_state_dict(first.state_dict())


def test_param_groups_hold_everything_once_and_spare_vectors_from_decay() -> None:
    model = small_net()
    groups = pcs.attach_(model, EXAMPLE).param_groups(weight_decay=1e-3)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    for group in groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (1e-3 if parameter.ndim > 1 else 0.0)


def test_report_lists_every_layer() -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE)
    report = shrinker.report()
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)) and "pcs_gate" not in name:
            assert name in report
    assert "network output" in report


def test_attaching_again_reuses_the_gates() -> None:
    model = small_net()
    first = pcs.attach_(model, EXAMPLE)
    keys = list(model.state_dict())
    second = pcs.attach_(model, EXAMPLE)
    assert list(model.state_dict()) == keys
    assert [g.name for g in first.groups] == [g.name for g in second.groups]
    small = pcs.compact(model, first.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in first.groups}), EXAMPLE)
    third = pcs.attach_(small, EXAMPLE)
    assert [g.channels for g in third.groups] == [g.channels // 2 for g in first.groups]


@pytest.mark.parametrize(("budget", "message"), [
    ({"madds": 2e9}, "no less than what the dense network costs"),
    ({"madds": 1e-6}, "cannot be reached"),
    ({"flops": 0.5}, "unknown budget flops"),
    ({}, "give exactly one of madds"),
    ({"latency": 0.5}, 'needs gates="fold"'),
])  # fmt: skip
def test_an_impossible_budget_is_refused_at_once(budget: dict[str, float], message: str) -> None:
    shrinker = pcs.attach_(small_net(), EXAMPLE)
    with pytest.raises(pcs.ShrinkError, match=message):
        pcs.set_budget(shrinker, EXAMPLE, **budget)


def test_settled_gates_can_be_folded_without_changing_an_answer() -> None:
    shrinker = pcs.attach_(randomise_(small_net()), EXAMPLE)
    x = torch.randn(4, *EXAMPLE.shape[1:])
    shrinker.model(x)
    shrinker.model.eval()
    with torch.no_grad():
        free = shrinker.model(x)
        shrinker.settle(1.0)
        constant = shrinker.model(x)
        torch.testing.assert_close(pcs.fold(shrinker.model)(x), constant, rtol=1e-4, atol=1e-5)
        shrinker.settle(None)
        assert torch.equal(shrinker.model(x), constant)
        shrinker.settle(0.0)
        assert torch.equal(shrinker.model(x), free)
    assert not torch.allclose(free, constant)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "half"])
def test_the_share_of_settling_is_checked(share: Any) -> None:
    with pytest.raises(ConfigError, match=r"from 0 \(free gates\)"):
        pcs.attach_(small_net(), EXAMPLE).settle(share)
