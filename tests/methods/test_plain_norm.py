"""The faster way of an ordinary batch norm is that batch norm."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from pcshrink.methods import passes
from pcshrink.methods.plain_norm import hasten_norms_


def trained(norm: nn.BatchNorm2d, x: Tensor, grad: Tensor) -> list[Tensor | None]:
    x = x.clone().requires_grad_()
    out = norm(x).relu_()  # an activation that works in place may follow
    out.backward(grad)
    return [out, x.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]


@pytest.mark.parametrize("channels", [3, 11, 16, 24, 80])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_gives_outputs_gradients_and_statistics_of_batch_norm(
    channels: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "FEW", 0)  # as for large images
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(channels).to(torch.promote_types(dtype, torch.float32))
    nn.init.uniform_(norm.weight)
    nn.init.uniform_(norm.bias)
    twin = copy.deepcopy(norm)
    hasten_norms_(norm)
    x, grad = (torch.randn(2, 6, channels, 8, 8).to(dtype) + 0.5).unbind()
    x, grad = (t.contiguous(memory_format=torch.channels_last) for t in (x, grad))
    tolerance = {"rtol": 0, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 0.02, "atol": 0.02}
    for ours, theirs in zip(trained(norm, x, grad), trained(twin, x, grad), strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_names_copies_and_evaluation_stay_as_they_were() -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5))
    names = list(net.state_dict())
    twin = copy.deepcopy(net)
    hasten_norms_(net)
    copied = copy.deepcopy(net)
    assert list(copied.state_dict()) == names
    x = torch.randn(2, 3, 6, 6)
    copied(x)  # in training mode its own statistics change, not those of the original
    torch.testing.assert_close(net.eval()(x), twin.eval()(x), rtol=0, atol=0)
