"""The operations random networks are made of.

Each is one function: it gets a ``pick`` that chooses among options, and example tensors; it returns a module or a plain
function that is then applied to the tensors, or ``None`` where the operation does not fit them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pick = Callable[..., Any]
Applied = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """One entry of the table: what it is called, the ranks of the tensors it takes, and how to make one."""

    name: str
    ranks: tuple[int, ...]
    make: Callable[..., Applied | None]
    common: bool


TABLE: list[Operation] = []


def op(*ranks: int, common: bool = False) -> Callable[[Any], Any]:
    """Put an operation into the table; common ones are drawn more often."""

    def register(make: Any) -> Any:
        TABLE.append(Operation(make.__name__.strip("_"), ranks, make, common))
        return make

    return register


WIDTHS = (4, 6, 8, 12)
ACTIVATIONS = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.LeakyReLU, nn.ReLU6, nn.ELU, nn.Mish,  # keep zero
    nn.Sigmoid, nn.Softplus, nn.Hardsigmoid, nn.LogSigmoid,  # do not
)  # fmt: skip


def _conv(pick: Pick, width: int, out: int, groups: int = 1) -> nn.Module:
    kernel = pick(1, 3)
    conv = nn.Conv2d(
        width, out, kernel, pick(1, 1, 2), padding=kernel // 2, groups=groups, bias=pick(True, False),
        padding_mode=pick(*["zeros"] * 9, "circular"),
    )  # fmt: skip
    parts: list[nn.Module] = [conv]
    if pick(True, True, False):
        parts.append(nn.BatchNorm2d(out, affine=pick(True, True, False)))
    if pick(True, True, False):
        parts.append(pick(nn.ReLU, nn.ReLU, nn.Hardswish)(inplace=True))
    return nn.Sequential(*parts) if len(parts) > 1 else conv


@op(4, common=True)
def conv(pick: Pick, x: Tensor) -> Applied:
    return _conv(pick, x.shape[1], pick(*WIDTHS))


@op(4, common=True)
def depthwise(pick: Pick, x: Tensor) -> Applied:
    return _conv(pick, x.shape[1], x.shape[1] * pick(1, 1, 2), groups=x.shape[1])


@op(4)
def grouped(pick: Pick, x: Tensor) -> Applied | None:
    groups = [g for g in (2, 3, 4) if x.shape[1] % g == 0]
    return _conv(pick, x.shape[1], pick(12, 24), groups=pick(*groups)) if groups else None


@op(4)
def transposed(pick: Pick, x: Tensor) -> Applied | None:
    groups = pick(1, 1, 2) if x.shape[1] % 2 == 0 else 1
    return nn.ConvTranspose2d(x.shape[1], pick(*WIDTHS), 2, stride=2, groups=groups) if x.shape[2] <= 4 else None


@op(4)
def weight_normed(pick: Pick, x: Tensor) -> Applied:
    return nn.utils.parametrizations.weight_norm(nn.Conv2d(x.shape[1], pick(*WIDTHS), 1))


@op(4, common=True)
def batch_norm(pick: Pick, x: Tensor) -> Applied:
    return nn.BatchNorm2d(x.shape[1], track_running_stats=pick(True, True, True, False))


@op(4)
def other_norm(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] % 2 or x.shape[2] * x.shape[3] < 4:
        return None
    kind = pick("group", "instance", "layer", "response", "one group")
    if kind == "layer":
        return nn.LayerNorm(x.shape[1:])
    if kind == "response":
        return nn.LocalResponseNorm(3)
    return (
        nn.InstanceNorm2d(x.shape[1], affine=True)
        if kind == "instance"
        else nn.GroupNorm(2 if kind == "group" else 1, x.shape[1])
    )


def _activation(pick: Pick, x: Tensor) -> Applied:
    kind = pick(*ACTIVATIONS[:2], *ACTIVATIONS, nn.PReLU)
    if kind is nn.PReLU:
        return nn.PReLU(pick(1, x.shape[1]))
    return kind(inplace=True) if kind is nn.ReLU and pick(True, False) else kind()


@op(4, common=True)
def activation(pick: Pick, x: Tensor) -> Applied:
    return _activation(pick, x)


@op(2)
def activation_2d(pick: Pick, x: Tensor) -> Applied:
    return _activation(pick, x)


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


@op(4, common=True)
def parts(pick: Pick, x: Tensor) -> Applied | None:
    """Several tensors from one."""
    count = pick(2, 2, 3)
    if x.shape[1] % count or x.shape[1] < 2 * count:
        return None
    size = x.shape[1] // count
    return pick(
        lambda x: x.chunk(count, 1),
        lambda x: x.split(x.shape[1] // count, 1),
        lambda x: x.split(size, 1),
        lambda x: x.split([size + 1, x.shape[1] - size - 1], 1),
        lambda x: x.tensor_split(count, 1),
        lambda x: (x[:, : x.shape[1] // count], x[:, x.shape[1] // count :]),
        lambda x: (x[:, :size], x[:, size:]),
        lambda x: x.unflatten(1, (count, -1)).unbind(1),
        lambda x: (x.narrow(1, 0, x.shape[1] // count), x),
    )


class Splitter(nn.Module):
    """Knows the sizes of its pieces as attributes, in a list or as one width."""

    def __init__(self, sizes: list[int], width: int | None) -> None:
        super().__init__()
        self.splits, self.width = sizes, width

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.splits if self.width is None else self.width // 2, 1)


@op(4)
def parts_by_attribute(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] < 6:
        return None
    first = pick(2, 3)
    listed = pick(True, False) or x.shape[1] % 2 == 1
    return Splitter([first, x.shape[1] - first], None if listed else x.shape[1])


@op(4)
def folded_view(pick: Pick, x: Tensor) -> Applied | None:
    """Channels seen as a matrix, one side of which is summed up."""
    rows = pick(2, 2, 3)
    if x.shape[1] % rows or x.shape[1] <= rows:
        return None
    kind, side = pick("sum", "mean", "amax"), pick(1, 2)
    first = pick(True, False)
    return lambda x: getattr(x.unflatten(1, (rows, -1) if first else (-1, rows)), kind)(side)


@op(4)
def repeated(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] > 12:
        return None
    return pick(
        lambda x: x.repeat(1, 2, 1, 1), lambda x: x.repeat_interleave(2, 1), lambda x: torch.cat([x, x], 1),
        lambda x: x.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2), lambda x: torch.cat([x, -x], 1).relu(),
    )  # fmt: skip


@op(4)
def neighbours(pick: Pick, x: Tensor) -> Applied | None:
    if x.shape[1] > 6:
        return None
    return lambda x: F.unfold(x, 3, padding=1).unflatten(2, x.shape[2:])


@op(4)
def slice_write(pick: Pick, x: Tensor) -> Applied:
    def write(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, :, 0] = value
        return y

    def write_channels(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, :2] += 1
        return y

    def scatter_view(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, :, ::2] = x[:, :, ::2]
        return y

    value = pick(0.0, 1.0)
    return pick(write, write_channels, scatter_view)


@op(4)
def drop(pick: Pick, x: Tensor) -> Applied:
    return pick(nn.Dropout(0.2), nn.Dropout2d(0.2), nn.Identity(), nn.AlphaDropout(0.1))


@op(4, 4, common=True)
def join(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    if x.shape[2:] != y.shape[2:] or x.shape[1] + y.shape[1] > 32:
        return None
    return lambda x, y: torch.cat([x, y], 1)


@op(4, 4, 4)
def join_three(pick: Pick, x: Tensor, y: Tensor, z: Tensor) -> Applied | None:
    if len({t.shape[2:] for t in (x, y, z)}) > 1 or x.shape[1] + y.shape[1] + z.shape[1] > 32:
        return None
    return lambda x, y, z: torch.cat([z, x, y], 1)


@op(4, 4, common=True)
def meet(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    try:
        torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        return None
    made = pick(
        lambda x, y: x + y, lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - 0.5 * y,
        lambda x, y: torch.maximum(x, y), lambda x, y: x / (1 + y.abs()), lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: torch.where(x > 0, x, y), lambda x, y: torch.atan2(x, y.abs() + 1),
    )  # fmt: skip
    if x.shape == y.shape:
        stacked: list[Applied] = [
            lambda x, y: torch.stack([x, y]).sum(0), lambda x, y: torch.stack([x, y], 2).amax(2),
            lambda x, y: x.clone().add_(y), lambda x, y: torch.add(x, y, alpha=2), lambda x, y: sum((x, y)),
        ]  # fmt: skip
        made = pick(made, made, *stacked)
    return made


@op(4, 4)
def correlate(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    """Products of two maps over their channels, or over their places."""
    if x.shape != y.shape:
        return None
    return pick(
        lambda x, y: (x * y).sum(1, keepdim=True) + y,
        lambda x, y: torch.einsum("nchw,ncij->nhwij", x, y).mean((3, 4)).unsqueeze(1),
        lambda x, y: torch.bmm(x.flatten(2), y.flatten(2).transpose(1, 2)).unsqueeze(1),
    )


@op(4, common=True)
def to_vector(pick: Pick, x: Tensor) -> Applied:
    return pick(lambda x: x.mean((2, 3)), lambda x: x.flatten(1), lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1))


@op(4, common=True)
def to_tokens(pick: Pick, x: Tensor) -> Applied:
    return lambda x: x.flatten(2).transpose(1, 2)


@op(2, common=True)
def linear(pick: Pick, x: Tensor) -> Applied:
    out = pick(*WIDTHS)
    return pick(
        nn.Linear(x.shape[1], out, bias=pick(True, False)),
        nn.Sequential(nn.Linear(x.shape[1], out), nn.BatchNorm1d(out), nn.ReLU()),
        nn.Sequential(nn.Linear(x.shape[1], out), nn.ReLU(), nn.Dropout(0.1)),
    )


@op(2, 4)
def scale_map(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    return (lambda x, y: y * x[:, :, None, None]) if x.shape[1] == y.shape[1] else None


@op(2, 2)
def meet_2d(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    if pick("cat", "add") == "cat":
        return lambda x, y: torch.cat([x, y], -1)
    return (lambda x, y: x + y) if x.shape == y.shape else None


class Attention(nn.Module):
    """One linear layer for queries, keys and values, or three; the fused kernel, or written out."""

    def __init__(self, width: int, num_heads: int, fused: bool, joint: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.fused = num_heads, 4, fused
        inner = 4 * num_heads
        self.qkv = nn.Linear(width, 3 * inner) if joint else None
        self.q, self.k, self.v = (None if joint else nn.Linear(width, inner) for _ in range(3))
        self.proj = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        if self.qkv is not None:
            qkv = self.qkv(x).reshape(n, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.unbind(0)
        else:
            q, k, v = (
                layer(x).view(n, length, self.num_heads, self.head_dim).transpose(1, 2)
                for layer in (self.q, self.k, self.v)
            )
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(q @ k.transpose(-2, -1) / 2, -1) @ v
        return self.proj(y.transpose(1, 2).reshape(n, length, -1))


@op(3, common=True)
def attention(pick: Pick, x: Tensor) -> Applied:
    return Attention(x.shape[2], pick(2, 3, 4), pick(True, False), pick(True, True, False))


class TorchAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


@op(3)
def torch_attention(pick: Pick, x: Tensor) -> Applied | None:
    return TorchAttention(x.shape[2]) if x.shape[2] % 2 == 0 else None


@op(3, common=True)
def token_layer(pick: Pick, x: Tensor) -> Applied | None:
    width = x.shape[2]
    return pick(
        nn.Linear(width, pick(*WIDTHS)),
        nn.LayerNorm(width),
        nn.RMSNorm(width),
        nn.Sequential(nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width)),
        nn.Sequential(nn.Linear(width, 12), nn.GLU()),
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, width)),
    )


@op(3)
def recurrent(pick: Pick, x: Tensor) -> Applied:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = pick(nn.GRU, nn.LSTM)(x.shape[2], 6, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)[0]

    return Recurrent()


class MixTokens(nn.Module):
    """A linear layer over the places."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(length, 6), nn.GELU(), nn.Linear(6, length))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(x.transpose(1, 2)).transpose(1, 2)


@op(3)
def mix_tokens(pick: Pick, x: Tensor) -> Applied:
    return MixTokens(x.shape[1])


class ClassToken(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)


@op(3)
def class_token(pick: Pick, x: Tensor) -> Applied:
    return ClassToken(x.shape[2])


@op(3, 3)
def meet_3d(pick: Pick, x: Tensor, y: Tensor) -> Applied | None:
    if x.shape[1] == y.shape[1] and x.shape[2] != y.shape[2]:
        return lambda x, y: torch.cat([x, y], 2)
    return (lambda x, y: x + y) if x.shape == y.shape else None


@op(3)
def out_of_tokens(pick: Pick, x: Tensor) -> Applied:
    return pick(lambda x: x.mean(1), lambda x: x[:, 0], lambda x: x.amax(1))


@op(3)
def back_to_map(pick: Pick, x: Tensor) -> Applied | None:
    side = round(x.shape[1] ** 0.5)
    if side * side != x.shape[1]:
        return None
    return lambda x: x.transpose(1, 2).unflatten(2, (side, side))
