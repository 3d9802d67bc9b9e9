"""Products and means of large images in channels_last layout, against what autograd makes of the plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pcshrink.surgery import maps, product


@pytest.fixture(params=[False, True], ids=["small", "large"], autouse=True)
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        for module in (maps, product):
            monkeypatch.setattr(module, "FEW", 0)
        monkeypatch.setattr(maps, "PIECE", 1)


def made(layout: torch.memory_format, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 3, 5, 6, dtype=dtype).contiguous(memory_format=layout).requires_grad_()


layouts = pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])


@layouts
@dtypes
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("learned", [False, True])
def test_a_product_is_that_of_each_place(
    layout: torch.memory_format, dtype: torch.dtype, samples: int, learned: bool
) -> None:
    x, other = made(layout, dtype), made(layout, dtype)
    factor = torch.rand(samples, 3, dtype=dtype).requires_grad_(learned)
    twin = factor.detach().clone().requires_grad_(learned)
    out, expected = product.times(x, factor), other * twin[..., None, None]
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(x.grad, other.grad)
    torch.testing.assert_close(factor.grad, twin.grad)


@layouts
@dtypes
def test_a_mean_has_the_gradient_of_a_mean_also_beside_another(layout: torch.memory_format, dtype: torch.dtype) -> None:
    x, other = made(layout, dtype), made(layout, dtype)
    mean, expected = product.mean_over_space(x), other.mean(dim=(2, 3), dtype=maps.wide_type(other))
    rough = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}  # sums are rounded to it
    torch.testing.assert_close(mean, expected, **rough)
    weights, grad = torch.randn_like(mean), torch.randn(4, 3, 5, 6, dtype=dtype)
    ((mean * weights).sum() + (x * grad).sum()).backward()
    ((expected * weights).sum() + (other * grad).sum()).backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_images_without_a_gradient_may_be_multiplied() -> None:
    x = made(torch.channels_last, torch.float64).detach()
    factor = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    product.times(x, factor).sum().backward()
    torch.testing.assert_close(factor.grad, x.sum(dim=(2, 3)))
