"""Whole feature maps, taken in the shape in which torch's kernels are fast: as long rows.

x is (B, C, ...), contiguous or (images) channels_last. In channels_last a place with few channels is a narrow row, so
several places are taken as one, and values for each sample and channel are repeated over the width first.
"""

from __future__ import annotations

import torch
from torch import Tensor

WIDE_ROW = 256  # channels of several places together; torch takes the moments of narrow rows at a third of the speed
LONG_ROW = 64  # places; for fewer the kernels for groups take longer by row than they save
VECTOR = 64  # bytes that a processor takes at once
PIECE = 1 << 20  # elements that stay in the cache from one operation to the next
FEW = 1 << 18  # elements of maps so small that the number of operations counts, not what they read and write


def is_channels_last(x: Tensor) -> bool:
    """Whether these are images with the channels of a place side by side."""
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


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


def is_narrow(x: Tensor) -> bool:
    """Whether these are large channels_last images of so few channels that they are better taken as wide rows."""
    channels = x.shape[1]
    return channels < 64 and (channels < 32 or channels % 16 != 0) and x.numel() >= FEW and is_channels_last(x)


def as_rows(x: Tensor) -> Tensor:
    """channels_last images as (N, C times a power of two): so many places make one wide row."""
    channels, together = x.shape[1], 1
    places = x.numel() // channels
    while channels * together < WIDE_ROW and places % (2 * together) == 0:
        together *= 2
    return x.permute(0, 2, 3, 1).reshape(-1, channels * together)


def _torch_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """As BatchNorm takes them. The statistics that it would update are given only for their type."""
    unused = torch.zeros(x.shape[1], dtype=wide_type(x), device=x.device)
    return torch.batch_norm_update_stats(x, unused, unused, 0.0)


def _merged(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of parts of equal size (parts, C) -> of all of them (C,)."""
    between, whole = torch.var_mean(mean, dim=0, correction=0)
    return whole, var.mean(dim=0).add_(between)


def normalise(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` with everything but x (C,): a norm's evaluation pass."""
    if not is_narrow(x):
        plain: Tensor = torch.native_batch_norm(x, weight, bias, mean, var, False, 0.0, eps)[0]
        return plain
    rows = as_rows(x)
    weight, bias, mean, var = along_rows(rows, weight, bias, mean, var)
    return like(torch.native_batch_norm(rows, weight, bias, mean, var, False, 0.0, eps)[0], x)


def along_rows(rows: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Values for each channel (C,), for rows of several places."""
    return torch.cat([torch.stack(values)] * (rows.shape[1] // len(values[0])), dim=1).unbind()


def update_running(
    running_mean: Tensor | None, running_var: Tensor | None, momentum: float, mean: Tensor, var: Tensor, count: int
) -> None:
    """Take a batch into a norm's running statistics, the variance without bias as BatchNorm does."""
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((var * (count / (count - 1))).to(running_var.dtype), momentum)


def like(moved: Tensor, x: Tensor) -> Tensor:
    """The same memory in the shape of x.

    Not a view: a ReLU that works in place may follow, and autograd lets none change a view made in here.
    """
    return x.new_empty(0).set_(moved.untyped_storage(), 0, x.shape, x.stride())


def wide_type(x: Tensor) -> torch.dtype:
    """Of sums over a map."""
    return torch.float32 if x.dtype == torch.bfloat16 else x.dtype


def over_space(values: Tensor, maps: Tensor) -> Tensor:
    """Values (B, C) or (1, C) in the shape and type to be added to or multiplied with maps."""
    values = values.to(maps.dtype)
    long_enough = maps.element_size() > 2 and maps.shape[1] * maps.element_size() >= VECTOR
    if long_enough or maps.numel() < FEW or not is_channels_last(maps):
        return values.view(*values.shape, *[1] * (maps.ndim - 2))
    (count, channels), width = values.shape, maps.shape[3]
    repeated = torch.cat([values] * width, dim=1)  # the fastest way by far: ``repeat`` takes twice as long
    return repeated.as_strided((count, channels, 1, width), (channels * width, 1, channels * width, channels))


def sum_over(x: Tensor, dims: list[int]) -> Tensor:
    """Sum in float32 or wider."""
    if x.dtype == torch.bfloat16:
        # Accumulates in float32 as well, and asking for a float32 result would first copy the whole input.
        return x.sum(dim=dims).float()
    return x.sum(dim=dims, dtype=torch.float32 if x.dtype == torch.float16 else x.dtype)


def sums_over_space(grad: Tensor, x: Tensor) -> Tensor:
    """The sums of grad * x and of grad over space (2, B, C), in float32 or wider."""
    batch, channels = x.shape[:2]
    space = x.numel() // (batch * channels)
    if x.ndim == 2:
        return torch.stack((grad * x, grad)).to(wide_type(x))
    if is_channels_last(x) or space < LONG_ROW:
        return _sums_in_pieces(grad, x, max(PIECE // (channels * space), 1))
    # The parameter gradients of a group norm with every row its own group, mean 0 and deviation 1 are just these two
    # sums, and its kernel reads the inputs once.
    rows = batch * channels
    one = torch.ones(1, rows, dtype=wide_type(x), device=x.device)
    _, with_x, alone = torch.ops.aten.native_group_norm_backward(
        grad.view(1, rows, space), x.view(1, rows, space), torch.zeros_like(one), one, one[0], 1, rows, space, rows,
        [False, True, True],
    )  # fmt: skip
    return torch.stack((with_x, alone)).view(2, batch, channels)


def sums_of_product(a: Tensor, b: Tensor) -> Tensor:
    """The sums of a * b over space (B, C), for images, in float32 or wider."""
    samples = max(PIECE // a[0].numel(), 1)
    pieces = zip(a.split(samples), b.split(samples), strict=True)
    return torch.cat([sum_over(part * other, [2, 3]) for part, other in pieces])


def _sums_in_pieces(grad: Tensor, x: Tensor, samples: int) -> Tensor:
    """Sums over space of so many samples at a time, so that their products are still in the cache when added up."""
    axes = list(range(2, x.ndim))
    pieces = zip(grad.split(samples), x.split(samples), strict=True) if len(x) > samples else [(grad, x)]
    sums = [torch.stack((sum_over(g * part, axes), sum_over(g, axes))) for g, part in pieces]
    return sums[0] if len(sums) == 1 else torch.cat(sums, dim=1)
