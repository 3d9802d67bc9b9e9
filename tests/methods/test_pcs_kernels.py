"""The kernels of a gated norm: what they compute in one go is what the parts would compute one after the other."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from pcshrink.methods.pcs import passes
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.kernels import Tap, gated_batch_norm
from pcshrink.methods.pooling import pool
from pcshrink.shrinker import attach_
from pcshrink.surgery import maps


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 5, 6), (4, 3, 8, 8), (2, 3, 4, 3, 2)])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_fused_norm_equals_norm_times_salience(
    shape: tuple[int, ...], channels_last: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # what is done for large maps
        for module in (passes, maps):
            monkeypatch.setattr(module, "FEW", 0)
        monkeypatch.setattr(maps, "PIECE", 1)
    torch.manual_seed(0)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    norm = kind(3).double()
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    twin = copy.deepcopy(norm)
    x = torch.randn(shape, dtype=torch.float64)
    if channels_last and x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    salience = torch.rand(shape[:2], dtype=torch.float64)
    ours, theirs = ([t.clone().requires_grad_() for t in (x, salience)] for _ in range(2))
    grad = torch.randn(shape, dtype=torch.float64)
    out = gated_batch_norm(norm, *ours).relu_()  # an activation that works in place may follow
    out.backward(grad)
    expected = (twin(theirs[0]) * theirs[1].reshape(*shape[:2], *[1] * (len(shape) - 2))).relu()
    expected.backward(grad)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for a, b in (*zip(ours, theirs, strict=True), (norm.weight, twin.weight), (norm.bias, twin.bias)):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-12)
    for name, buffer in norm.named_buffers():
        torch.testing.assert_close(buffer, dict(twin.named_buffers())[name])


@pytest.mark.parametrize("channels_last", [False, True])
def test_moments_of_bfloat16_are_those_of_the_same_numbers_in_float32(
    channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "FEW", 0)
    torch.manual_seed(0)
    norm, twin = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    x = (torch.randn(16, 3, 8, 8) + 4).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    gated_batch_norm(norm, x, torch.ones(16, 3))
    twin(x.float())
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean, twin.running_mean)
    torch.testing.assert_close(norm.running_var, twin.running_var)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_tap_gives_the_gradient_of_pooling_and_handing_on(
    dtype: torch.dtype, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(maps, "FEW", 0)
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 6, dtype=dtype).contiguous(memory_format=torch.channels_last)
    grad = torch.randn(4, 3, 5, 6, dtype=dtype).contiguous(memory_format=torch.channels_last)
    grad_pooled = torch.randn(4, 3, dtype=torch.promote_types(dtype, torch.float32))
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    out, pooled = Tap.apply(ours)
    expected = pool(theirs, 1)
    torch.testing.assert_close(out, x, rtol=0, atol=0)
    torch.testing.assert_close(pooled, expected)
    torch.autograd.backward([out, pooled], [grad, grad_pooled])
    torch.autograd.backward([theirs, expected], [grad, grad_pooled])
    assert ours.grad is not None
    assert ours.grad.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_channels_last_training_gives_the_gradients_of_plain_training() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)).double()
    x = torch.randn(6, 3, 9, 9, dtype=torch.float64)
    grads = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(1)
        model = copy.deepcopy(net).to(memory_format=layout)
        shrinker = attach_(model, x[:2], ShrinkConfig(ratio=0.5))
        images = x.clone().contiguous(memory_format=layout).requires_grad_()
        (model(images).square().sum() + shrinker.method.shrinking_loss()).backward()
        grads.append([images.grad, *[p.grad for p in model.parameters()]])
    for plain, last in zip(*grads, strict=True):
        torch.testing.assert_close(plain, last, rtol=1e-9, atol=1e-9)
