"""What is done to one map: plain functions, pools, reductions, excitation, scales, other layouts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.random_ops.table import Applied, Pick, op

POINTWISE: dict[str, Applied] = {
    "x * sigmoid(x)": lambda x: x * torch.sigmoid(x),
    "x + 1": lambda x: x + 1,
    "1 - x": lambda x: 1 - x,
    "2 * x": lambda x: 2 * x,
    "x.abs()": lambda x: x.abs(),
    "x ** 2": lambda x: x**2,
    "-x": lambda x: -x,
    "clamp(0, 6)": lambda x: x.clamp(0, 6),
    "clamp(min=0.1)": lambda x: x.clamp(min=0.1),
    "cos": torch.cos,
    "exp(-x.abs())": lambda x: torch.exp(-x.abs()),
    "where(x > 0, x, 0.1)": lambda x: torch.where(x > 0, x, 0.1),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0.0),
    "x * (x > 0)": lambda x: x * (x > 0),
    "relu_(clone)": lambda x: x.clone().relu_(),
    "x.float().to(x.dtype)": lambda x: x.to(torch.complex128).real if x.dtype == torch.float64 else x,
    "zeros_like + x": lambda x: torch.zeros_like(x) + x,
    "ones_like * x": lambda x: torch.ones_like(x) * x,
    "x.detach() + x": lambda x: x.detach() + x,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.1),
    "new_zeros.copy_": lambda x: x.new_zeros(x.shape).copy_(x),
    "identity": lambda x: x,
}


@op(4)
def pointwise(pick: Pick, x: Tensor) -> Applied:
    return POINTWISE[pick(*POINTWISE)]


@op(4)
def pool(pick: Pick, x: Tensor) -> Applied | None:
    if min(x.shape[2:]) < 2:
        return None
    return pick(
        nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2), nn.AdaptiveMaxPool2d(2),
        nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(1), nn.LPPool2d(2, 2),
    )  # fmt: skip


@op(4)
def upsample(pick: Pick, x: Tensor) -> Applied | None:
    if max(x.shape[2:]) > 4:
        return None
    mode = pick("nearest", "bilinear", "bicubic")
    return lambda x: F.interpolate(x, scale_factor=2, mode=mode)


@op(4)
def pad(pick: Pick, x: Tensor) -> Applied | None:
    mode, value, both = pick(("constant", 0.0), ("constant", 1.0), ("reflect", None)), 0.0, pick(1, 1, 2)
    mode, value = mode
    if mode == "constant" and both == 2:
        return lambda x: F.pad(x, (0, 0, 0, 0, 1, 1), value=value)
    if min(x.shape[2:]) < 2 or max(x.shape[2:]) > 8:
        return None
    return lambda x: F.pad(x, (1, 0, 0, 1), mode=mode, value=value)


@op(4)
def reduce_channels(pick: Pick, x: Tensor) -> Applied:
    """A map that weighs places: over all channels at once."""
    kind = pick("mean", "max", "sum", "norm")
    if kind == "max":
        return lambda x: x * torch.sigmoid(x.max(1, keepdim=True).values)
    if kind == "norm":
        return lambda x: F.normalize(x, dim=1)
    return lambda x: x * torch.tanh(getattr(x, kind)(1, keepdim=True))


@op(4)
def reduce_space(pick: Pick, x: Tensor) -> Applied:
    kind = pick("mean", "amax", "sum", "std", "norm")
    if kind == "std":
        return lambda x: x - x.std((2, 3), keepdim=True, correction=0)
    if kind == "norm":  # global response normalisation
        return lambda x: x * (x.norm(dim=(2, 3), keepdim=True) / (x.norm(dim=(2, 3), keepdim=True).mean(1, True) + 1))
    return lambda x: x * getattr(x, kind)((2, 3), keepdim=True)


class Excite(nn.Module):
    """Squeeze and excite, with linear layers or 1x1 convolutions."""

    def __init__(self, width: int, linear: bool, gate: Applied) -> None:
        super().__init__()
        self.linear, self.gate = linear, gate
        layer: Any = nn.Linear if linear else (lambda i, o: nn.Conv2d(i, o, 1))
        self.squeeze, self.act, self.up = layer(width, 4), nn.ReLU(), layer(4, width)

    def forward(self, x: Tensor) -> Tensor:
        pooled = x.mean((2, 3)) if self.linear else F.adaptive_avg_pool2d(x, 1)
        scale = self.gate(self.up(self.act(self.squeeze(pooled))))
        return x * (scale[:, :, None, None] if self.linear else scale)


@op(4, common=True)
def excite(pick: Pick, x: Tensor) -> Applied:
    return Excite(x.shape[1], pick(True, False), pick(torch.sigmoid, F.hardsigmoid, F.relu, torch.tanh))


@op(4)
def shuffle_pixels(pick: Pick, x: Tensor) -> Applied | None:
    if pick("up", "down") == "up":
        return nn.PixelShuffle(2) if x.shape[1] % 4 == 0 and x.shape[1] > 4 and x.shape[2] <= 4 else None
    even = x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0
    return nn.PixelUnshuffle(2) if even and x.shape[1] <= 6 else None


@op(4)
def shuffle_channels(pick: Pick, x: Tensor) -> Applied | None:
    parts, module = pick(2, 2, 3, 4), pick(True, False, False)
    if x.shape[1] % parts:
        return None
    if module:
        return nn.ChannelShuffle(parts)
    fixed = x.shape[1] // parts if pick(False, False, True) else None

    def by_view(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        return x.view(n, parts, fixed or c // parts, h, w).transpose(1, 2).reshape(n, c, h, w)

    return by_view


@op(4)
def softmax(pick: Pick, x: Tensor) -> Applied:
    dim = pick(1, 2, -1)
    return lambda x: x * torch.softmax(x, dim)


class Affine(nn.Module):
    """Parameters or a buffer of the channels' own: layer scale, position bias, constants."""

    def __init__(self, shape: tuple[int, ...], kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind == "buffer":
            self.register_buffer("own", torch.rand(shape) + 0.5)
        else:
            self.own = nn.Parameter(torch.rand(shape) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.own if self.kind == "add" else x * self.own


@op(4, common=True)
def affine(pick: Pick, x: Tensor) -> Applied:
    shape = pick((x.shape[1], 1, 1), (1, x.shape[1], 1, 1), tuple(x.shape[1:]), (1,))
    return Affine(shape, pick("scale", "scale", "add", "buffer"))


class ChannelsLast(nn.Module):
    """ConvNeXt: permute, norm or not, two linear layers, permute back."""

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.up, self.down = nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(self.norm(x.permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)


@op(4, common=True)
def channels_last(pick: Pick, x: Tensor) -> Applied:
    return ChannelsLast(x.shape[1], pick(True, False))


@op(4)
def move(pick: Pick, x: Tensor) -> Applied:
    return pick(
        lambda x: x.roll(1, 2), lambda x: x.roll(1, 1), lambda x: x.flip(3), lambda x: x.flip(1),
        lambda x: x.transpose(2, 3), lambda x: x.rot90(1, (2, 3)),
        lambda x: x.contiguous(memory_format=torch.channels_last),
    )  # fmt: skip


@op(4)
def take(pick: Pick, x: Tensor) -> Applied | None:
    """Channels by number: none of these can follow a cut."""
    return None if x.shape[1] < 3 else pick(
        lambda x: x[:, ::2], lambda x: x[:, [0, 1, 2]], lambda x: x[:, 1:3], lambda x: x[:, :1] + x,
        lambda x: x * x[:, 0, None], lambda x: x.index_select(1, torch.tensor([1, 0])), lambda x: x[:, -2:],
    )  # fmt: skip


@op(4)
def no_rule(pick: Pick, x: Tensor) -> Applied | None:
    return None if x.shape[1] < 2 else pick(
        lambda x: x.sort(1).values, lambda x: x.cumsum(1), lambda x: torch.fft.fft2(x).real,
        lambda x: x.topk(2, dim=1).values, lambda x: x.cumsum(2), lambda x: x.sort(2).values,
    )  # fmt: skip
