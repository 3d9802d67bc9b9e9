"""Optimizers made from a recipe."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from pcshrink.models import create
from pcshrink.train.optim import make_optimizer
from pcshrink.train.recipe.schema import OptimizerSection


@pytest.mark.parametrize("settings", [{}, {"nesterov": True}, {"momentum": 0.0}, {"name": "muon", "nesterov": True}])
def test_updating_all_in_one_call_is_updating_one_by_one(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = create("resnet20").double()
    twin = copy.deepcopy(model)
    section = OptimizerSection(lr=0.1, weight_decay=0.1, **settings)
    together = make_optimizer(model, section, torch.device("cpu"))
    alone = make_optimizer(twin, section)
    assert together.defaults["fused"]
    assert not alone.defaults["fused"]
    for rate in (0.1, 0.1, 0.05):
        for optimizer, net in ((together, model), (alone, twin)):
            for group in optimizer.param_groups:
                group["lr"] = rate
            torch.manual_seed(1)
            net(torch.randn(4, 3, 32, 32, dtype=torch.float64)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_sparse_gradients_and_other_devices_are_updated_one_by_one() -> None:
    net = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    assert not make_optimizer(net, OptimizerSection(), torch.device("cpu")).defaults["fused"]
    assert not make_optimizer(nn.Linear(2, 2), OptimizerSection(), torch.device("cuda")).defaults["fused"]
