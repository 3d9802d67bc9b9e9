"""T2T-ViT: tokens-to-token vision transformers (Yuan et al. 2021, arXiv 2101.11986).

Overlapping patches are cut by ``unfold``, mixed by a small transformer or performer, laid out as an image
again and cut again; after three cuts 196 tokens enter an ordinary deep and narrow transformer.

All attention is written in ``num_heads`` and ``head_dim`` of the layer itself, never in the width of its
input, so that whole heads can be taken out.

No code was copied. What the paper leaves open (paddings, the frozen tables, the scale of the token
transformer, parameter names) follows the released model as far as its published parameter counts confirm it;
loading its weights is untested.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError

TokensType = Literal["performer", "transformer"]


class Mlp(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token on its own."""
        return self.fc2(self.act(self.fc1(x)))  # type: ignore[no-any-return]


class DropPath(nn.Module):
    """Leaves a residual branch out for a random share of the samples while training (stochastic depth)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Zero whole samples and scale the others up, in training mode only."""
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(x.shape[0], 1, 1).bernoulli_(keep) / keep


class Attention(nn.Module):
    """Multi-head self-attention with fused q, k, v; the output width may differ from the input width.

    Args:
        dim: Width of the input.
        out_dim: Width of the output.
        num_heads: Heads.
        head_dim: Width of one head.
        scale: Factor on q k^T; default ``head_dim ** -0.5``.
        value_skip: Add v to the result, for layers whose input is too wide to be added.
    """

    def __init__(
        self,
        dim: int,
        out_dim: int,
        num_heads: int,
        head_dim: int,
        scale: float | None = None,
        value_skip: bool = False,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5 if scale is None else scale
        self.value_skip = value_skip
        self.qkv = nn.Linear(dim, 3 * num_heads * head_dim, bias=False)
        self.proj = nn.Linear(num_heads * head_dim, out_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of ``x`` (B, N, dim)."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, heads, N, head_dim)
        weights = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        out: Tensor = self.proj(mixed)
        return out + v.transpose(1, 2).flatten(2) if self.value_skip else out


class Block(nn.Module):
    """Pre-norm transformer layer of the backbone."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: float, drop_path: float, scale: float | None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, dim, num_heads, dim // num_heads, scale)
        self.drop_path = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then MLP, each added to its input."""
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))  # type: ignore[no-any-return]


class TokenTransformer(nn.Module):
    """One-head transformer layer from ``dim`` to ``token_dim``; the values replace the input in the sum."""

    def __init__(self, dim: int, token_dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, token_dim, 1, token_dim, dim**-0.5, value_skip=True)
        self.norm2 = nn.LayerNorm(token_dim)
        self.mlp = Mlp(token_dim, token_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim) to (B, N, token_dim)."""
        x = self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class TokenPerformer(nn.Module):
    """The same with linear attention: softmax by positive random features (Choromanski et al. 2021).

    The features are a fixed orthogonal projection, kept as a frozen parameter: published parameter counts
    include it.
    """

    def __init__(self, dim: int, token_dim: int, feature_ratio: float = 0.5) -> None:
        super().__init__()
        self.token_dim = token_dim
        self.features = int(token_dim * feature_ratio)
        self.kqv = nn.Linear(dim, 3 * token_dim)
        self.proj = nn.Linear(token_dim, token_dim)
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(token_dim)
        self.mlp = nn.Sequential(nn.Linear(token_dim, token_dim), nn.GELU(), nn.Linear(token_dim, token_dim))
        directions = nn.init.orthogonal_(torch.empty(self.features, token_dim))
        self.w = nn.Parameter(directions * math.sqrt(self.features), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim) to (B, N, token_dim)."""
        x = self._attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor) -> Tensor:
        k, q, v = self.kqv(x).split(self.token_dim, dim=-1)
        keys, queries = self._random_features(k), self._random_features(q)  # (B, N, features)
        total = queries @ keys.sum(dim=1).unsqueeze(2)  # (B, N, 1)
        mixed = queries @ (keys.transpose(1, 2) @ v)
        return v + self.proj(mixed / (total + 1e-8))  # type: ignore[no-any-return]

    def _random_features(self, x: Tensor) -> Tensor:
        half_norm = x.square().sum(dim=-1, keepdim=True) / 2
        return torch.exp(x @ self.w.t() - half_norm) / math.sqrt(self.features)


class TokensToToken(nn.Module):
    """Three overlapping cuts (7 x 7 by 4, then twice 3 x 3 by 2) with a mixing layer after the first two."""

    def __init__(self, tokens_type: TokensType, in_channels: int, token_dim: int, embed_dim: int) -> None:
        super().__init__()
        mixers: dict[str, type[nn.Module]] = {"performer": TokenPerformer, "transformer": TokenTransformer}
        if tokens_type not in mixers:
            message = f"tokens_type must be 'performer' or 'transformer', got {tokens_type!r}"
            raise ConfigError(message)
        mixer = mixers[tokens_type]
        self.soft_split0 = nn.Unfold(7, stride=4, padding=2)
        self.attention1 = mixer(in_channels * 49, token_dim)
        self.soft_split1 = nn.Unfold(3, stride=2, padding=1)
        self.attention2 = mixer(token_dim * 9, token_dim)
        self.soft_split2 = nn.Unfold(3, stride=2, padding=1)
        self.project = nn.Linear(token_dim * 9, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to tokens (B, H/16 * W/16, embed_dim)."""
        height, width = x.shape[-2] // 4, x.shape[-1] // 4
        x = self.attention1(self.soft_split0(x).transpose(1, 2))
        x = _as_image(x, height, width)
        x = self.attention2(self.soft_split1(x).transpose(1, 2))
        x = _as_image(x, height // 2, width // 2)
        return self.project(self.soft_split2(x).transpose(1, 2))  # type: ignore[no-any-return]


class T2TViT(nn.Module):
    """Tokens-to-token module, class token, fixed sinusoid positions, transformer layers, linear head.

    Args:
        embed_dim: Width of the backbone.
        depth: Backbone layers.
        num_heads: Heads of each layer; ``embed_dim`` must be a multiple of it.
        mlp_ratio: Hidden width of each MLP over ``embed_dim``.
        tokens_type: What mixes tokens between the cuts.
        token_dim: Width of the tokens between the cuts.
        img_size: Height and width of the image, a multiple of 16.
        in_channels: Channels of the image.
        num_classes: Width of the output.
        drop_path_rate: Stochastic depth of the last layer; earlier ones have linearly less.
        qk_scale: Factor on q k^T of the backbone. Default: ``head_dim ** -0.5``.

    Raises:
        ConfigError: An argument does not describe such a network.
    """

    def __init__(
        self,
        *,
        embed_dim: int = 384,
        depth: int = 14,
        num_heads: int = 6,
        mlp_ratio: float = 3.0,
        tokens_type: TokensType = "performer",
        token_dim: int = 64,
        img_size: int = 224,
        in_channels: int = 3,
        num_classes: int = 1000,
        drop_path_rate: float = 0.0,
        qk_scale: float | None = None,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads or embed_dim % 2:
            message = f"embed_dim must be even and a multiple of num_heads, got {embed_dim} and {num_heads}"
            raise ConfigError(message)
        if img_size % 16:
            message = f"img_size must be a multiple of 16, got {img_size}"
            raise ConfigError(message)
        self.input_size = (in_channels, img_size, img_size)
        self.num_classes = num_classes
        self.tokens_to_token = TokensToToken(tokens_type, in_channels, token_dim, embed_dim)
        self.cls_token = nn.Parameter(torch.empty(1, 1, embed_dim))
        positions = sinusoid_positions((img_size // 16) ** 2 + 1, embed_dim)
        self.pos_embed = nn.Parameter(positions, requires_grad=False)
        rates = [drop_path_rate * index / max(depth - 1, 1) for index in range(depth)]
        self.blocks = nn.ModuleList(Block(embed_dim, num_heads, mlp_ratio, rate, qk_scale) for rate in rates)
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.apply(_initialise)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, num_classes) of images (B, in_channels, img_size, img_size)."""
        x = self.tokens_to_token(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])  # type: ignore[no-any-return]


def sinusoid_positions(tokens: int, dim: int) -> Tensor:
    """Sine and cosine position table of "Attention is all you need", shape (1, tokens, dim)."""
    angle = torch.arange(tokens, dtype=torch.float64)[:, None]
    angle = angle / 10000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)  # (tokens, dim / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[None].to(torch.get_default_dtype())


def _as_image(tokens: Tensor, height: int, width: int) -> Tensor:
    return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, height, width)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


_SIZES = {14: (384, 6), 19: (448, 7), 24: (512, 8)}


def _t2t(depth: int, tokens_type: TokensType, kwargs: dict[str, object]) -> T2TViT:
    embed_dim, num_heads = _SIZES[depth]
    given = {"embed_dim": embed_dim, "depth": depth, "num_heads": num_heads, "tokens_type": tokens_type}
    return T2TViT(**given | kwargs)  # type: ignore[arg-type]


def t2t_vit_14(**kwargs: object) -> T2TViT:
    """T2T-ViT-14 (performer): 21.5 M parameters, 4.8 G madds."""
    return _t2t(14, "performer", kwargs)


def t2t_vit_19(**kwargs: object) -> T2TViT:
    """T2T-ViT-19 (performer): 39.2 M parameters, 8.5 G madds."""
    return _t2t(19, "performer", kwargs)


def t2t_vit_24(**kwargs: object) -> T2TViT:
    """T2T-ViT-24 (performer): 64.1 M parameters, 13.7 G madds (13.8 G as published)."""
    return _t2t(24, "performer", kwargs)


def t2t_vit_t_14(**kwargs: object) -> T2TViT:
    """T2T-ViT_t-14 (transformer): 21.5 M parameters, 6.1 G madds."""
    return _t2t(14, "transformer", kwargs)


def t2t_vit_t_19(**kwargs: object) -> T2TViT:
    """T2T-ViT_t-19 (transformer): 39.2 M parameters, 9.8 G madds."""
    return _t2t(19, "transformer", kwargs)


def t2t_vit_t_24(**kwargs: object) -> T2TViT:
    """T2T-ViT_t-24 (transformer): 64.1 M parameters, 15.0 G madds."""
    return _t2t(24, "transformer", kwargs)
