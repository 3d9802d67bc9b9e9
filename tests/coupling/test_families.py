"""Every family of networks is cut exactly, or keeps its channels for a reason that names what holds them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.surgery.gates import find_gates
from testing.checks import LIMIT, outputs, random_keep, relative, stir_gates_
from testing.families import FAMILIES, Family

pytestmark = [
    pytest.mark.equivalence,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning"),
]
each_family = pytest.mark.parametrize("case", FAMILIES.values(), ids=FAMILIES.keys())


def gated(case: Family) -> tuple[nn.Module, Any, pcs.Shrinker]:
    model, example = case.model(), case.inputs(1)
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    return model, example, shrinker


def seeded(model: nn.Module, example: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return outputs(model, example)


@each_family
def test_groups_and_refusals(case: Family) -> None:
    _, _, shrinker = gated(case)
    assert {frozenset(g.writers) for g in shrinker.groups} == {frozenset(g.split("+")) for g in case.groups.split()}
    for name, piece in case.refused.items():
        assert piece in shrinker.refused[name]


@each_family
def test_masked_equals_compact(case: Family) -> None:
    model, example, shrinker = gated(case)
    whole, other = sum(p.numel() for p in model.parameters()), case.inputs(7)
    for seed, share in enumerate((0.0, 0.5, None)):  # 0 leaves one channel in every group
        plan = shrinker.plan(random_keep(shrinker, seed, share))
        small = pcs.compact(model, plan, example)
        assert sum(p.numel() for p in small.parameters()) < whole
        shrinker.mask_(plan)
        expected, got = seeded(model, other), seeded(small, other)
        shrinker.unmask_()
        assert relative(expected, got) <= LIMIT[torch.float64]
        assert any(float(t.std()) > 1e-4 for t in expected), "a constant output proves nothing"


@each_family
def test_folded_equals_constant_gates(case: Family) -> None:
    model, example, shrinker = gated(case)
    plan = shrinker.plan(random_keep(shrinker, seed=5))
    small = pcs.compact(model, plan, example, gates="fold")
    shrinker.mask_(plan)
    for gate in find_gates(model).values():
        gate.blend = 1.0
    other = case.inputs(7)
    assert relative(seeded(model, other), seeded(small, other)) <= LIMIT[torch.float64]


@each_family
def test_a_cut_of_a_cut_is_exact(case: Family) -> None:
    model, example, shrinker = gated(case)
    small = pcs.detach_(pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=1, share=0.7)), example))
    try:
        again = pcs.attach_(small, example)
    except pcs.NoSitesError:
        return  # one channel a group is left
    stir_gates_(small)
    plan = again.plan(random_keep(again, seed=2, share=0.5))
    smaller = pcs.compact(small, plan, example)
    again.mask_(plan)
    assert relative(seeded(small, example), seeded(smaller, example)) <= LIMIT[torch.float64]


@each_family
def test_the_file_gives_the_same_network(case: Family, tmp_path: Path) -> None:
    model, example, shrinker = gated(case)
    plan = shrinker.plan(random_keep(shrinker, seed=3, share=0.5))
    small = pcs.compact(model, plan, example)
    pcs.save(tmp_path / "small", small, plan=plan)
    loaded = pcs.load(tmp_path / "small", model=case.model())
    assert relative(seeded(small, example), seeded(loaded, example)) == 0


@pytest.mark.parametrize("name", ["weight norm by hooks", "spectral norm by hooks", "weight norm"])
def test_computed_weights_with_a_gradient_history_can_be_cut(name: str) -> None:
    model, example = FAMILIES[name].model(), FAMILIES[name].inputs(1)
    model.train()
    model(example).sum().backward()
    shrinker = pcs.attach_(model, example)
    model(example).sum().backward()
    plan = shrinker.plan(random_keep(shrinker, seed=1, share=0.5))
    small = pcs.compact(model, plan, example)
    small.train()
    small(example).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in small.parameters())


def test_group_norms_lose_whole_groups() -> None:
    model, example, shrinker = gated(FAMILIES["group norms"])
    small = pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=1, share=0.5)), example)
    for name, norm in small.named_modules():
        if isinstance(norm, nn.GroupNorm):
            before = model.get_submodule(name)
            assert norm.num_groups < before.num_groups
            assert norm.num_channels == len(norm.weight)
            assert norm.num_channels * before.num_groups == before.num_channels * norm.num_groups


def test_the_original_is_left_alone() -> None:
    model, example, shrinker = gated(FAMILIES["spectral norm"])
    before = copy.deepcopy(model.state_dict())
    pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=1, share=0.5)), example)
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())
