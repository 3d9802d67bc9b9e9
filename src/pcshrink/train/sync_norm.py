"""Batch norms that share their statistics between processes, on any device.

torch's own SyncBatchNorm runs on GPUs only. Here the modules stay what they are and only change class for as long as
several processes train them, so names, parameters and surgery are untouched.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class _Sum(torch.autograd.Function):
    """The sum over all processes, through which gradients flow back to all of them."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


class _Synced:
    def forward(self: Any, x: Tensor) -> Tensor:
        if not self.training or not dist.is_initialized():
            return super().forward(x)  # type: ignore[misc,no-any-return]
        return _normalise(self, x)


class SyncedBatchNorm1d(_Synced, nn.BatchNorm1d):
    """BatchNorm1d over the batches of all processes."""


class SyncedBatchNorm2d(_Synced, nn.BatchNorm2d):
    """BatchNorm2d over the batches of all processes."""


class SyncedBatchNorm3d(_Synced, nn.BatchNorm3d):
    """BatchNorm3d over the batches of all processes."""


_SYNCED: dict[type, type] = {
    nn.BatchNorm1d: SyncedBatchNorm1d,
    nn.BatchNorm2d: SyncedBatchNorm2d,
    nn.BatchNorm3d: SyncedBatchNorm3d,
}
_PLAIN = {synced: plain for plain, synced in _SYNCED.items()}


def synchronise_(model: nn.Module) -> None:
    """Let every batch norm of the model see the batches of all processes."""
    _change_class(model, _SYNCED)


def unsynchronise_(model: nn.Module) -> None:
    """Make them ordinary batch norms again."""
    _change_class(model, _PLAIN)


def _change_class(model: nn.Module, classes: dict[type, type]) -> None:
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]


def _normalise(norm: Any, x: Tensor) -> Tensor:
    dims = [d for d in range(x.ndim) if d != 1]
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    count = wide.numel() // wide.shape[1]
    total = count * dist.get_world_size()  # processes have equal shares of a batch
    shape = [1, -1] + [1] * (x.ndim - 2)
    # Two sums one after the other: the mean of squares less the square of the mean would lose too many digits.
    mean: Tensor = _Sum.apply(wide.sum(dims)) / total
    centred = wide - mean.reshape(shape)
    var: Tensor = _Sum.apply((centred * centred).sum(dims)) / total
    if norm.track_running_stats:
        with torch.no_grad():
            norm.num_batches_tracked.add_(1)
            weight = norm.momentum if norm.momentum is not None else 1 / float(norm.num_batches_tracked)
            norm.running_mean.lerp_(mean.detach().to(norm.running_mean.dtype), weight)
            unbiased = var.detach() * (total / max(total - 1, 1))
            norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), weight)
    out = centred * torch.rsqrt(var + norm.eps).reshape(shape)
    if norm.affine:
        out = out * norm.weight.reshape(shape) + norm.bias.reshape(shape)
    return out.to(x.dtype)
