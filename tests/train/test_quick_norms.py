"""Batch norms as wide rows give what torch's own give, and step aside where they must."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pcshrink.train.quick_norms import RowNorm, quick_norms

NARROW = [8, 9, 16, 29, 62]  # channels
SIDE = 32


def norm_of(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, momentum=0.3)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def images(channels: int, dtype: torch.dtype = torch.float32, batch: int = 32) -> Tensor:
    made = 2 * torch.randn(batch, channels, SIDE, SIDE) + 3 * torch.randn(channels, 1, 1)
    return made.to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def is_quick(out: Tensor) -> bool:
    return type(out.grad_fn).__name__ == f"{RowNorm.__name__}Backward"


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 5e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("channels", NARROW)
def test_the_same_as_in_float64(channels: int, dtype: torch.dtype, near: float) -> None:
    torch.manual_seed(channels)
    norm, x = norm_of(channels), images(channels, dtype)
    exact, x64 = norm_of(channels).double(), x.detach().double().requires_grad_()
    exact.load_state_dict(norm.state_dict())
    grad = torch.randn(x.shape).to(dtype)
    with quick_norms(wanted=True):
        out = norm(x)
    assert is_quick(out)
    assert out.dtype == dtype
    assert out.stride() == x.stride()
    out.backward(grad)
    expected = exact(x64)
    expected.backward(grad.double())
    pairs = [(out.detach(), expected.detach()), (x.grad, x64.grad), (norm.weight.grad, exact.weight.grad)]
    pairs += [(norm.bias.grad, exact.bias.grad), *zip(norm.buffers(), exact.buffers(), strict=True)]
    for found, wanted in pairs:
        assert found is not None
        assert wanted is not None
        assert float((found.double() - wanted).abs().max()) <= near * float(wanted.abs().max())


def test_statistics_of_bfloat16_are_taken_in_float32() -> None:
    torch.manual_seed(0)
    norm, plain, x = norm_of(8), norm_of(8), images(8, torch.bfloat16)
    with quick_norms(wanted=True):
        norm(x)
    plain(x.detach().float())
    torch.testing.assert_close(norm.running_mean, plain.running_mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.running_var, plain.running_var, rtol=1e-5, atol=1e-5)


def test_a_relu_may_work_in_place_behind_it() -> None:
    layers = nn.Sequential(norm_of(8), nn.ReLU(inplace=True))
    x = images(8)
    with quick_norms(wanted=True):
        layers(x).sum().backward()
    quick, x.grad = x.grad, None
    layers(x).sum().backward()
    torch.testing.assert_close(quick, x.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_that_are_computed_again_get_torchs_own(reentrant: bool) -> None:
    torch.manual_seed(0)
    layers, x = nn.Sequential(nn.Conv2d(8, 8, 1), norm_of(8)).to(memory_format=torch.channels_last), images(8)
    gradients = []
    for again in (False, True):
        x.grad = None
        with quick_norms(wanted=True):
            out = checkpoint(layers, x, use_reentrant=reentrant) if again else layers(x)
        out.square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("norm", "x"),
    [
        (norm_of(8).eval(), images(8)),
        (norm_of(32), images(32)),
        (norm_of(8), images(8).detach().contiguous().requires_grad_()),
        (norm_of(8), images(8, batch=2)),
        (nn.BatchNorm2d(8, affine=False), images(8)),
        (norm_of(8).double(), images(8, torch.float64)),
    ],
    ids=["evaluation", "wide", "contiguous", "small", "nothing to learn", "float64"],
)
def test_everything_else_is_left_to_torch(norm: nn.BatchNorm2d, x: Tensor) -> None:
    with quick_norms(wanted=True):
        assert not is_quick(norm(x))


def test_only_while_it_lasts_and_where_it_is_wanted() -> None:
    norm, x = norm_of(8), images(8)
    with quick_norms(wanted=False):
        assert not is_quick(norm(x))
    with quick_norms(wanted=True), torch.no_grad():
        assert not is_quick(norm(x))
    assert not is_quick(norm(x))


def test_only_this_thread_is_answered_and_torchs_function_comes_back() -> None:
    norm, own, others = norm_of(8), torch.nn.functional.batch_norm, []
    with quick_norms(wanted=True):
        thread = threading.Thread(target=lambda: others.append(norm(images(8))))
        thread.start()
        thread.join()
        with quick_norms(wanted=True):
            pass
        assert is_quick(norm(images(8)))
    assert not is_quick(others[0])
    assert torch.nn.functional.batch_norm is own
