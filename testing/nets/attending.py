"""Attention."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from testing.nets.case import net
from testing.nets.parts import OUTPUT


class Attention(nn.Module):
    """Heads are the units: whole ones leave."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, width // num_heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        return self.proj(y.transpose(1, 2).reshape(n, length, -1))


@net(
    (2, 5, 6),
    groups="attn.qkv up",
    refused={"embed": "layer_norm", "attn.proj": "layer_norm", "down": "", **OUTPUT},
)
class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attn = nn.Linear(6, 16), Attention(16, 4)
        self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.up, self.down, self.head = nn.Linear(16, 24), nn.Linear(24, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.attn(self.n1(x))
        x = x + self.down(F.gelu(self.up(self.n2(x))))
        return self.head(x.mean(1))
