"""Batch norms of narrow images, taken as wide rows while a network trains on a CPU.

In channels_last layout torch's own kernel goes place by place, and a place of 8 channels costs it more than one of 16.
A network that was cut has many such layers. Several places taken as one row give the same figures in half of the time
or less. Modules are left as they are: a norm asks torch for the function, and is answered by this one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pcshrink.surgery.maps import along_rows, as_rows, is_narrow, moments, normalise, update_running

# What a layer that is computed again in the backward pass saves must be the same both times, so it gets torch's own.
_hooks_on_saved_tensors: Callable[[bool], object] | None = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", None
)


def quick_norms(*, wanted: bool) -> AbstractContextManager[object]:
    """While it lasts, batch norms of narrow images are computed as rows; nothing changes unless wanted."""
    return _QuickNorms() if wanted and _hooks_on_saved_tensors is not None else nullcontext()


class _QuickNorms:
    """Puts its own function in the place of torch's, for this thread.

    Torch's own way to answer a function (``TorchFunctionMode``) asks for every call of every function, thousands in a
    step, and takes several milliseconds of it.
    """

    users: ClassVar[int] = 0  # in all threads
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __enter__(self) -> None:
        """Answer batch norms from now on."""
        with self.lock:
            _QuickNorms.users += 1
            F.batch_norm = _batch_norm  # type: ignore[assignment]  # the first argument has another name
        _HERE.wanted += 1

    def __exit__(self, *_: object) -> None:
        """Let torch answer again."""
        _HERE.wanted -= 1
        with self.lock:
            _QuickNorms.users -= 1
            if not self.users:
                F.batch_norm = _torch_batch_norm


class _Here(threading.local):
    wanted = 0


_HERE = _Here()
_torch_batch_norm = F.batch_norm


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """As ``torch.nn.functional.batch_norm``."""
    if weight is None or bias is None or not (training and _HERE.wanted and _pays(x, weight)):
        return _torch_batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    out: Tensor = RowNorm.apply(x, weight, bias, running_mean, running_var, momentum, eps)
    return out


def _pays(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"  # a part of the network may be elsewhere
        and weight.dtype == torch.float32
        and x.dtype in (torch.float32, torch.bfloat16)
        and torch.is_grad_enabled()
        and is_narrow(x)
        and _hooks_on_saved_tensors is not None
        and _hooks_on_saved_tensors(True) is None
    )


class RowNorm(torch.autograd.Function):
    """A batch norm with the statistics of the batch, for images that ``is_narrow``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        """Normalise, and take the batch into the running statistics."""
        mean, var = moments(x)
        update_running(running_mean, running_var, momentum, mean, var, x.numel() // x.shape[1])
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt_())
        return normalise(x, weight, bias, mean, var, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Of x, weight and bias.

        The gradient of x is ``weight / std * (grad - mean of grad - (x - mean) / var * mean of (grad * (x - mean)))``:
        grad times one factor for each channel, plus the normalised x times another, plus a constant.
        """
        x, weight, mean, invstd = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        rows, grad_rows = as_rows(x), as_rows(grad)
        grad_weight, grad_bias = _sums(grad_rows, rows, mean, invstd)
        scale, places = weight * invstd, x.numel() // len(weight)
        slope, shift = scale * grad_weight / -places, scale * grad_bias / -places
        grad_x = normalise(x, slope, shift, mean, invstd.pow(-2), 0.0)
        (factor,) = along_rows(rows, scale.to(x.dtype))
        as_rows(grad_x).addcmul_(grad_rows, factor)
        return grad_x, grad_weight, grad_bias, None, None, None, None


def _sums(grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor) -> tuple[Tensor, Tensor]:
    """Of grad times the normalised x and of grad, for each channel (C,): gradients of a norm's weight and bias."""
    channels = len(mean)
    mean, invstd = along_rows(x, mean, invstd)
    # As one image with a row for each place, since the kernel for plain matrices goes channel by channel.
    grad, x = (rows.view(1, -1, 1, rows.shape[1]).permute(0, 3, 1, 2) for rows in (grad, x))
    _, with_x, alone = torch.ops.aten.native_batch_norm_backward(
        grad, x, None, None, None, mean, invstd, True, 0.0, [False, True, True]
    )
    return with_x.view(-1, channels).sum(dim=0), alone.view(-1, channels).sum(dim=0)
