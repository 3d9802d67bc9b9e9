"""Vectors and tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from testing.random_ops.table import WIDTHS, Applied, Pick, op


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
