"""Muon against what it says it does: orthogonal rows, an angle, and SGD for the rest."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.train.muon import Muon, orthogonal, turn_, turning
from pcshrink.train.run import train
from testing.small_net import EXAMPLE, small_net
from testing.training import model_bytes, tiny, train_with_stops


@pytest.mark.parametrize("shape", [(8, 27), (16, 16), (30, 9)])
def test_rows_or_columns_become_orthogonal_and_keep_their_directions(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.T @ orthogonal(matrix) @ right.T
    assert torch.allclose(inner, torch.diag(inner.diagonal()), atol=1e-9)
    large = inner.diagonal()[values > 0.1 * values.max()]
    assert float(large.min()) > 0.6
    assert float(large.max()) < 1.3


def test_nothing_moves_without_a_gradient() -> None:
    assert torch.equal(orthogonal(torch.zeros(4, 9)), torch.zeros(4, 9))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    F.cross_entropy(model(x), torch.arange(len(x)) % 5).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_filters_turn_by_the_angle_and_the_rest_moves_as_with_sgd() -> None:
    torch.manual_seed(0)
    ours, theirs, x = small_net(), None, torch.randn(8, 3, 12, 12)
    theirs = copy.deepcopy(ours)
    filters = turning(ours)
    assert len(filters) == 6
    options = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    rest = [p for p in ours.parameters() if p not in filters]
    muon = Muon([{"params": list(filters), "turn": 0.3}, {"params": rest, "weight_decay": 5e-4}], **options)
    sgd = torch.optim.SGD(theirs.parameters(), **options, weight_decay=5e-4)  # type: ignore[arg-type]
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    _step(ours, muon, x)
    _step(theirs, sgd, x)
    for (name, own), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if own not in filters:
            assert torch.equal(own, other), name
            continue
        old, new = before[name].flatten(), own.detach().flatten()
        cosine = float(F.cosine_similarity(old, new, dim=0))
        assert math.acos(cosine) == pytest.approx(0.03, rel=0.1)
        assert float(new.norm()) == pytest.approx(float(old.norm()), rel=1e-5)


@pytest.mark.parametrize("toward", [1.0, 0.0, -1.0], ids=["shorter", "aside", "longer"])
def test_the_size_of_filters_stays_whatever_the_momentum(toward: float) -> None:
    torch.manual_seed(0)
    filters = torch.randn(6, 4, 3, 3, dtype=torch.float64)
    for _ in range(50):
        old = filters.clone()
        turn_(filters, torch.randn_like(filters) + 5 * toward * filters, 0.1)
        assert float(filters.norm()) == pytest.approx(float(old.norm()), rel=1e-12)
        cosine = float(F.cosine_similarity(old.flatten(), filters.flatten(), dim=0))
        assert math.acos(cosine) == pytest.approx(0.1, rel=1e-6)


def test_filters_without_a_gradient_or_of_size_zero_stay() -> None:
    filters = torch.randn(4, 2, 3, 3)
    before = filters.clone()
    turn_(filters, torch.zeros_like(filters), 0.1)
    torch.testing.assert_close(filters, before)
    empty = torch.zeros(4, 2, 3, 3)
    turn_(empty, torch.randn(4, 2, 3, 3), 0.1)
    assert torch.equal(empty, torch.zeros(4, 2, 3, 3))


def test_gates_and_depthwise_filters_do_not_turn() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1, groups=8))
    assert turning(net) == {net[0].weight}
    gated = small_net()
    plain = len(turning(gated))
    pcs.attach_(gated, EXAMPLE)
    assert len(turning(gated)) == plain


def test_it_goes_on_after_a_cut() -> None:
    net = small_net()
    shrinker = pcs.attach_(net, EXAMPLE)
    filters = turning(net)
    rest = [p for p in net.parameters() if p not in filters]
    muon = Muon([{"params": list(filters), "turn": 0.3}, {"params": rest}], lr=0.1, momentum=0.9)
    _step(net, muon, torch.randn(8, 3, 12, 12))
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    small = pcs.compact(net, plan, EXAMPLE)
    after = pcs.transfer(muon, net, small, plan)
    assert [group["turn"] for group in after.param_groups] == [0.3, 0.0]
    _step(small, after, torch.randn(8, 3, 12, 12))
    assert all(bool(p.isfinite().all()) for p in small.parameters())


def test_a_run_with_muon_learns_and_resumes_exactly(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"distill": None, "epochs": {"shrink": 3, "settle": 2}, "train": {"ema": 0.9}}
    recipe = tiny(optimizer={"lr": 0.1, "name": "muon", "turn": 0.05}, **changes)
    whole = train(recipe, tmp_path / "whole", quiet=True)
    train_with_stops(recipe, tmp_path / "parts", 40)
    assert model_bytes(tmp_path / "parts") == model_bytes(tmp_path / "whole")
    assert whole.compact["error"] < 20
