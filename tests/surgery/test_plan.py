"""What holds for every plan: it is data, it fits together, and the way it came about does not matter."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import pcshrink as pcs
from pcshrink.errors import ConfigError, PlanMismatchError
from pcshrink.models import create
from pcshrink.surgery.cut import apply_plan
from testing.checks import random_keep
from testing.nets import CASES

names = st.sampled_from(sorted(CASES))
seeds = st.integers(0, 2**31)
thorough = settings(max_examples=200, derandomize=True, deadline=None, database=None)


@cache
def attached(name: str, align: int = 1) -> pcs.Shrinker:
    case = CASES[name]
    return pcs.attach_(case.model(), case.inputs(), pcs.ShrinkConfig(align=align))


@thorough
@given(names, seeds)
def test_indices_are_kept_ones_in_order(name: str, seed: int) -> None:
    shrinker = attached(name)
    keep = random_keep(shrinker, seed)
    plan = shrinker.plan(keep)
    for group in shrinker.groups:
        kept = plan.groups[group.name]
        assert plan.sizes[group.name] == group.channels
        assert 1 <= len(kept) <= group.channels
        assert kept == torch.nonzero(keep[group.name]).flatten().tolist()
    for tensor, axes in plan.tensors.items():
        for axis, kept in axes.items():
            assert kept == sorted(set(kept))
            assert 0 < len(kept) <= plan.shapes[tensor][axis]
            assert kept[-1] < plan.shapes[tensor][axis]


@thorough
@given(names, seeds)
def test_same_plan_whatever_the_order(name: str, seed: int) -> None:
    shrinker = attached(name)
    keep = random_keep(shrinker, seed)
    plan = shrinker.plan(keep)
    assert shrinker.plan(dict(reversed(keep.items()))) == plan
    assert shrinker.plan(keep) == plan
    assert pcs.PrunePlan.from_json(plan.to_json()) == plan
    assert len(str(plan).splitlines()) == len(shrinker.groups)


@thorough
@given(names, seeds)
def test_modules_say_how_wide_they_are(name: str, seed: int) -> None:
    shrinker = attached(name)
    small = apply_plan(shrinker.model, shrinker.plan(random_keep(shrinker, seed)))
    for module in small.modules():
        if isinstance(module, nn.modules.conv._ConvTransposeNd):
            assert module.weight.shape[:2] == (module.in_channels, module.out_channels // module.groups)
        elif isinstance(module, nn.modules.conv._ConvNd):
            assert module.weight.shape[:2] == (module.out_channels, module.in_channels // module.groups)
        elif isinstance(module, nn.Linear):
            assert module.weight.shape == (module.out_features, module.in_features)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.weight.shape == module.running_mean.shape == (module.num_features,)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_that_keeps_everything_changes_nothing(name: str) -> None:
    shrinker = attached(name)
    for plan in (shrinker.plan({}), shrinker.plan({g.name: torch.ones(g.channels) > 0 for g in shrinker.groups})):
        assert not plan.attributes
        small = apply_plan(shrinker.model, plan)
        before = shrinker.model.state_dict()
        assert all(torch.equal(tensor, before[key]) for key, tensor in small.state_dict().items())


@pytest.mark.parametrize("name", CASES)
def test_a_plan_fits_only_once(name: str) -> None:
    shrinker = attached(name)
    plan = shrinker.plan(random_keep(shrinker, seed=1))
    with pytest.raises(PlanMismatchError):
        apply_plan(apply_plan(shrinker.model, plan), plan)


@pytest.mark.parametrize("name", CASES)
def test_two_cuts_are_one(name: str) -> None:
    """Cutting some channels and then some more gives what cutting them all at once gives."""
    case, shrinker = CASES[name], attached(name)
    first = {g.name: torch.arange(g.channels) != 0 for g in shrinker.groups if g.channels > 2}
    both = {key: flags & (torch.arange(len(flags)) != 2) for key, flags in first.items()}
    once = apply_plan(shrinker.model, shrinker.plan(both))
    half = apply_plan(shrinker.model, shrinker.plan(first))
    again = pcs.attach_(half, case.inputs())
    rest = {key: flags[first[key]] for key, flags in both.items()}
    twice = apply_plan(again.model, again.plan(rest))
    assert list(once.state_dict()) == list(twice.state_dict())
    for key, tensor in once.state_dict().items():
        assert torch.equal(tensor, twice.state_dict()[key]), key


def test_widths_are_aligned_by_pattern() -> None:
    config = pcs.ShrinkConfig(ratio=0.6, align={"layer1.*": 8, "layer3.*": 16})
    shrinker = pcs.attach_(create("resnet20"), torch.randn(1, 3, 32, 32), config)
    assert shrinker.align["layer1.0.conv1"] == 8
    assert shrinker.align["layer2.1.conv1"] == 1
    assert shrinker.align["layer3.2.conv1"] == 16
    kept = {group.name: group.channels - group.k for group in shrinker.groups}
    assert (kept["layer1.1.conv1"], kept["layer2.1.conv1"], kept["layer3.1.conv1"]) == (8, 13, 32)


@pytest.mark.parametrize(("align", "message"), [
    ({"layer9.*": 8}, "is for no layer that shrinks"),
    ({"layer1.*": 64}, r"align\['layer1\.\*'\] 64 has no effect: the largest group has 16"),
    ({"*": 8, "layer3.*": 16}, "an earlier pattern matches them all"),
    ({"layer1.*": 0}, "whole number of at least 1"),
    ({}, "at least one pattern"),
])  # fmt: skip
def test_bad_alignments_by_pattern_are_refused(align: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pcs.attach_(create("resnet20"), torch.randn(1, 3, 32, 32), pcs.ShrinkConfig(align=align))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("align", [2, 4])
def test_default_plan_is_aligned(name: str, align: int) -> None:
    shrinker = attached(name, align)
    generator = torch.Generator().manual_seed(0)
    for gate in shrinker.method.gates.values():
        gate.running.copy_(torch.rand(gate.running.shape, generator=generator).round())
    for group, kept in shrinker.plan(shrinker.method.keep()).groups.items():
        size = next(g.channels for g in shrinker.groups if g.name == group)
        assert len(kept) % align == 0 or len(kept) == size or size < align


def test_at_least_one_channel_stays() -> None:
    shrinker = attached("Chain")
    with pytest.raises(PlanMismatchError, match="at least one"):
        shrinker.plan({shrinker.groups[0].name: torch.zeros(shrinker.groups[0].channels, dtype=torch.bool)})
    for gate in shrinker.method.gates.values():
        gate.running.zero_()
    assert all(len(kept) == shrinker.config.min_channels == 2 for kept in shrinker.plan().groups.values())


@pytest.mark.parametrize("name", CASES)
def test_shapes_after_a_plan_are_those_of_the_compact_network(name: str) -> None:
    shrinker = attached(name)
    plan = shrinker.plan(random_keep(shrinker, seed=3))
    before, after = (model.state_dict() for model in (shrinker.model, apply_plan(shrinker.model, plan)))
    expected = {key: plan.shape_after(key, before[key].shape) for key in after}
    assert {key: tuple(tensor.shape) for key, tensor in after.items()} == expected
