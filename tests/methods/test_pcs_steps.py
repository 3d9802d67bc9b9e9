"""Steps that are done by hand for speed give what autograd gives for the layers they stand for."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.generator import SalienceGenerator
from pcshrink.shrinker import attach_
from pcshrink.surgery.gates import find_gates


@pytest.mark.parametrize(("used", "pushed"), [(True, True), (True, False), (False, True)])
def test_a_generator_in_one_step_gives_the_gradients_of_its_layers(used: bool, pushed: bool) -> None:
    torch.manual_seed(0)
    ours = SalienceGenerator(5, 7, 8).double()
    nn.init.normal_(ours.fc2.weight, std=3.0)  # beyond both ends of the hard sigmoid
    theirs = copy.deepcopy(ours)
    pooled = torch.randn(6, 5, dtype=torch.float64)
    weight, pull = torch.randn(2, 6, 7, dtype=torch.float64)
    inputs = [pooled.clone().requires_grad_() for _ in range(2)]
    assert ours.generates_plainly(inputs[0])
    salience, handle = ours.with_handle(inputs[0])
    hidden = F.relu(theirs.norm(theirs.fc1(inputs[1])))  # type: ignore[misc]
    expected = F.hardsigmoid(theirs.fc2(hidden)), F.relu(theirs.fc2(hidden.detach()) / 6 + 0.5)
    torch.testing.assert_close((salience, handle), expected, rtol=0, atol=1e-12)
    for made in ((salience, handle), expected):
        (used * (made[0] * weight).sum() + pushed * (made[1] * pull).sum()).backward()
    for a, b in zip([inputs[0], *ours.parameters()], [inputs[1], *theirs.parameters()], strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-12)
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_generator_that_does_not_learn_is_not_pushed() -> None:
    generator = SalienceGenerator(5, 7, 8).requires_grad_(False)
    salience, handle = generator.with_handle(torch.randn(6, 5, requires_grad=True))
    assert salience.requires_grad
    assert not handle.requires_grad


@pytest.mark.parametrize("bf16", [False, True])
def test_norm_and_generator_in_one_step_give_the_gradients_of_both(bf16: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 11, 3), nn.BatchNorm2d(11), nn.ReLU(), nn.Conv2d(11, 4, 3))
    x = torch.randn(8, 3, 9, 9)
    grads = []
    for plainly in (True, False):
        torch.manual_seed(1)
        model = copy.deepcopy(net)
        shrinker = attach_(model, x[:2], ShrinkConfig(ratio=0.5))
        if not plainly:  # a factor of one for every channel takes the other way
            for gate in find_gates(model).values():
                gate.closes = True
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = model(x)
        (out.float().square().sum() + shrinker.method.shrinking_loss()).backward()
        grads.append([p.grad for p in model.parameters()])
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
