"""Passes over whole feature maps, each in as few reads, writes and calls as torch's own kernels allow.

x is (B, C, ...), contiguous or (images) channels_last. Every way here was measured on a CPU against the obvious one;
what they have in common is that torch's kernels are fast on long rows and slow on narrow ones:

- contiguous: one sample and channel is a row, so a norm over (1, B * C, space) scales and shifts each by its own;
- channels_last: a row of places with all their channels is long, so several places are taken as one for moments, and
  in bfloat16 a factor is repeated over the width first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pcshrink.methods.pooling import sum_over

NARROW = {2: 32, 4: 64, 8: 64}  # channels below which BatchNorm's own kernel is slow, by bytes of an element
WIDE_ROW = 256  # channels of several places together; torch takes the moments of narrow rows at a third of the speed
LONG_ROW = 64  # places; for fewer the kernels for groups take longer by row than they save
FEW = 1 << 18  # elements of maps so small that the number of operations counts, not what they read and write
PIECE = 1 << 20  # elements that stay in the cache from one operation to the next


def is_channels_last(x: Tensor) -> bool:
    """Whether these are images with the channels of a place side by side."""
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def moments_pay(x: Tensor) -> bool:
    """Whether ``moments`` and ``gated_norm`` beat BatchNorm's own kernel and a product."""
    if x.numel() < FEW or x.ndim < 3:
        return False
    return x.shape[1] < NARROW[x.element_size()] if is_channels_last(x) else x[0, 0].numel() >= LONG_ROW


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel (C,), in float32 or wider."""
    batch, channels = x.shape[:2]
    space = x.numel() // (batch * channels)
    if is_channels_last(x):
        mean, var = _torch_moments(as_rows(x))
        return (mean, var) if len(mean) == channels else _merged(mean.view(-1, channels), var.view(-1, channels))
    if space < LONG_ROW or x.dtype not in (torch.float32, torch.float64):
        return _torch_moments(x)
    # BatchNorm's own kernel adds up one by one in double; that of a norm of groups is several times faster.
    rows = batch * channels
    _, mean, invstd = torch.native_group_norm(x.view(1, rows, space), None, None, 1, rows, space, rows, 0.0)
    return _merged(mean.view(batch, channels), invstd.view(batch, channels).square().reciprocal())


def odd_channels(x: Tensor) -> bool:
    """Whether these are large channels_last images of few channels that do not fill the processor's vectors."""
    return x.shape[1] < 64 and x.shape[1] % 16 != 0 and x.numel() >= FEW and is_channels_last(x)


def as_rows(x: Tensor) -> Tensor:
    """channels_last images as (N, C times a power of two): so many places make one wide row."""
    channels, together = x.shape[1], 1
    places = x.numel() // channels
    while channels * together < WIDE_ROW and places % (2 * together) == 0:
        together *= 2
    return x.permute(0, 2, 3, 1).reshape(-1, channels * together)


def _torch_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """As BatchNorm takes them. The statistics that it would update are given only for their type."""
    unused = torch.zeros(x.shape[1], dtype=_wide(x), device=x.device)
    return torch.batch_norm_update_stats(x, unused, unused, 0.0)


def _merged(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of parts of equal size (parts, C) -> of all of them (C,)."""
    between, whole = torch.var_mean(mean, dim=0, correction=0)
    return whole, var.mean(dim=0).add_(between)


def gated_norm(
    x: Tensor, factor: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    """``normalise(...) * factor`` for factor (B, C)."""
    if is_channels_last(x) and x.dtype != weight.dtype:
        # In two passes, since a shift in bfloat16 would be wrong by the same amount everywhere.
        return normalise(x, weight, bias, mean, var, eps).mul_(over_space(factor, x))
    scale = (var + eps).rsqrt_().mul_(weight)
    shift = torch.addcmul(bias, mean, scale, value=-1)
    if is_channels_last(x):
        return torch.addcmul(over_space(shift * factor, x), x, over_space(scale * factor, x))
    return _affine(x, scale * factor, shift * factor)


def normalise(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` with everything but x (C,): a norm's evaluation pass."""
    if not odd_channels(x):
        plain: Tensor = torch.native_batch_norm(x, weight, bias, mean, var, False, 0.0, eps)[0]
        return plain
    rows = as_rows(x)
    together = rows.shape[1] // x.shape[1]
    weight, bias, mean, var = torch.cat([torch.stack((weight, bias, mean, var))] * together, dim=1).unbind()
    return like(torch.native_batch_norm(rows, weight, bias, mean, var, False, 0.0, eps)[0], x)


def combine(grad: Tensor, factor: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """``grad * factor + normalise(x, ...)`` for factor (B, C)."""
    return normalise(x, weight, bias, mean, var, 0.0).addcmul_(grad, over_space(factor, x))


def sums_over_space(grad: Tensor, x: Tensor) -> Tensor:
    """The sums of grad * x and of grad over space (2, B, C), in float32 or wider."""
    batch, channels = x.shape[:2]
    space = x.numel() // (batch * channels)
    if x.ndim == 2:
        return torch.stack((grad * x, grad)).to(_wide(x))
    if is_channels_last(x) or space < LONG_ROW:
        return _sums_in_pieces(grad, x, max(PIECE // (channels * space), 1))
    # The parameter gradients of a group norm with every row its own group, mean 0 and deviation 1 are just these two
    # sums, and its kernel reads the inputs once.
    rows = batch * channels
    one = torch.ones(1, rows, dtype=_wide(x), device=x.device)
    _, with_x, alone = torch.ops.aten.native_group_norm_backward(
        grad.view(1, rows, space), x.view(1, rows, space), torch.zeros_like(one), one, one[0], 1, rows, space, rows,
        [False, True, True],
    )  # fmt: skip
    return torch.stack((with_x, alone)).view(2, batch, channels)


def _sums_in_pieces(grad: Tensor, x: Tensor, samples: int) -> Tensor:
    """Sums over space of so many samples at a time, so that their products are still in the cache when added up."""
    axes = list(range(2, x.ndim))
    pieces = zip(grad.split(samples), x.split(samples), strict=True) if len(x) > samples else [(grad, x)]
    sums = [torch.stack((sum_over(g * part, axes), sum_over(g, axes))) for g, part in pieces]
    return sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)


def over_space(values: Tensor, maps: Tensor) -> Tensor:
    """Values (B, C) or (1, C) in the shape and type to be added to or multiplied with maps."""
    values = values.to(maps.dtype)
    if maps.element_size() > 2 or maps.numel() < FEW or not is_channels_last(maps):
        return values.view(*values.shape, *[1] * (maps.ndim - 2))
    (count, channels), width = values.shape, maps.shape[3]
    repeated = torch.cat([values] * width, dim=1)  # the fastest way by far: ``repeat`` takes twice as long
    return repeated.as_strided((count, channels, 1, width), (channels * width, 1, channels * width, channels))


def update_running(norm: nn.BatchNorm2d, mean: Tensor, var: Tensor, count: int) -> None:
    """Take the batch into the norm's running statistics, the variance without bias as BatchNorm does."""
    if norm.running_mean is not None and norm.running_var is not None and norm.momentum is not None:
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), norm.momentum)
        norm.running_var.lerp_((var * (count / (count - 1))).to(norm.running_var.dtype), norm.momentum)


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """``x * scale + shift`` for scale and shift (B, C) and contiguous x."""
    if x.ndim == 2:
        return torch.addcmul(shift, x.to(scale.dtype), scale).to(x.dtype)
    rows = x.reshape(1, -1, *x.shape[2:])
    scale, shift = scale.reshape(-1), shift.reshape(-1)
    return like(normalise(rows, scale, shift, torch.zeros_like(scale), torch.ones_like(scale), 0.0), x)


def like(moved: Tensor, x: Tensor) -> Tensor:
    """The same memory in the shape of x.

    Not a view: a ReLU that works in place may follow, and autograd lets none change a view made in here.
    """
    return x.new_empty(0).set_(moved.untyped_storage(), 0, x.shape, x.stride())


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype == torch.bfloat16 else x.dtype
