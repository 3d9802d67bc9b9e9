"""Forward passes of our own for attention classes whose code fixes the number of heads.

Some classes lay the heads' outputs out with the width of their *input*, or call their projection as a function, where
no gate can reach it. For these, known by their full name, a forward pass is kept here that computes the same from
``num_heads`` and the weights as they are. It is bound to single instances: while a gate sits on the output projection,
and for good once heads were cut.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.surgery.gate import BoundForward


@dataclass(frozen=True)
class Adapter:
    """How one class is adapted.

    Attributes:
        forward: Stands in for the class's own forward pass.
        projection: The child that reads the heads; as wide as its output while no head is gone.
        fits: Whether an instance uses nothing that ``forward`` leaves out.
    """

    forward: Callable[..., Any]
    projection: str
    fits: Callable[[Any], bool]


ADAPTERS: dict[str, Adapter] = {}


def _adapter(
    *names: str, projection: str, fits: Callable[[Any], bool]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(forward: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            ADAPTERS[name] = Adapter(forward, projection, fits)
        return forward

    return register


def find_adapter(module: nn.Module) -> Adapter | None:
    """The adapter of a module's very class; a subclass may compute something else."""
    adapter = ADAPTERS.get(f"{type(module).__module__}.{type(module).__qualname__}")
    return adapter if adapter is not None and adapter.fits(module) else None


def adapt_(module: nn.Module) -> bool:
    """Bind the adapted forward pass to a module; whether that changed anything."""
    adapter = find_adapter(module)
    if adapter is None or "forward" in vars(module):
        return False
    module.forward = BoundForward(module, adapter.forward)
    if isinstance(module, nn.MultiheadAttention):
        module._qkv_same_embed_dim = False  # keeps TransformerEncoderLayer's fused path, which knows no cut heads, away
    return True


def restore_(module: nn.Module) -> None:
    """Give a module its own forward pass back, unless heads are missing."""
    adapter = find_adapter(module)
    if adapter is None or getattr(vars(module).get("forward"), "function", None) is not adapter.forward:
        return
    projection = module.get_submodule(adapter.projection)
    if projection.in_features == projection.out_features:
        del module.forward
        if isinstance(module, nn.MultiheadAttention):
            module._qkv_same_embed_dim = module.in_proj_weight is not None


def owner_of(model: nn.Module, layer: str) -> nn.Module:
    """The module that may have to be adapted for a gate at the input of this layer to be reached."""
    return model.get_submodule(layer.rpartition(".")[0])


@contextlib.contextmanager
def adapted(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Adapt modules for a while; those that were adapted before stay so."""
    changed = [module for module in modules if adapt_(module)]
    try:
        yield
    finally:
        for module in changed:
            restore_(module)


def _merge(heads: Tensor) -> Tensor:
    """(B, heads, N, head_dim) to (B, N, heads * head_dim)."""
    return heads.transpose(1, 2).flatten(2)


def _is_plain(attention: nn.MultiheadAttention) -> bool:
    return attention.bias_k is None and attention.bias_v is None and not attention.add_zero_attn


@_adapter("torch.nn.modules.activation.MultiheadAttention", projection="out_proj", fits=_is_plain)
def _multihead(
    self: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """As nn.MultiheadAttention, with the output projection called as a module."""
    single, alike = query.dim() == 2, query is key and key is value
    if single:
        query, key, value = (t.unsqueeze(0) for t in (query, key, value))
    elif not self.batch_first:
        query, key, value = (t.transpose(0, 1) for t in (query, key, value))
    q, k, v = _project(self, query, key, value, alike)  # (B, heads, N, head_dim)
    bias = _additive(attn_mask, key_padding_mask, q)
    dropout = self.dropout if self.training else 0.0
    weights = None
    if need_weights:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = F.dropout((scores if bias is None else scores + bias).softmax(dim=-1), dropout)
        mixed = weights @ v
        weights = weights.mean(dim=1) if average_attn_weights else weights
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, bias, dropout)
    out: Tensor = self.out_proj(_merge(mixed))
    if single:
        return out.squeeze(0), None if weights is None else weights.squeeze(0)
    return out if self.batch_first else out.transpose(0, 1), weights


def _project(self: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, alike: bool) -> list[Tensor]:
    if self.in_proj_weight is not None and alike:
        fused = F.linear(query, self.in_proj_weight, self.in_proj_bias).unflatten(-1, (3, self.num_heads, -1))
        return list(fused.permute(2, 0, 3, 1, 4).unbind(0))
    if self.in_proj_weight is not None:
        kernels = list(self.in_proj_weight.chunk(3))
    else:
        kernels = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
    shifts: list[Any] = [None] * 3 if self.in_proj_bias is None else list(self.in_proj_bias.chunk(3))
    parts = zip((query, key, value), kernels, shifts, strict=True)
    return [F.linear(x, w, b).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x, w, b in parts]


def _additive(mask: Tensor | None, padding: Tensor | None, query: Tensor) -> Tensor | None:
    """Both masks as one tensor to add to the scores (B, heads, N, M)."""
    bias = None
    if mask is not None:
        bias = _as_bias(mask, query)
        bias = bias.unflatten(0, query.shape[:2]) if mask.dim() == 3 else bias
    if padding is not None:
        hidden = _as_bias(padding, query).reshape(-1, 1, 1, padding.shape[-1])
        bias = hidden if bias is None else bias + hidden
    return bias


def _as_bias(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)


def _has_fused_qkv(attention: object) -> bool:
    return isinstance(getattr(attention, "qkv", None), nn.Linear)


@_adapter(
    "torchvision.models.swin_transformer.ShiftedWindowAttention",
    "torchvision.models.swin_transformer.ShiftedWindowAttentionV2",
    "torchvision.models.video.swin_transformer.ShiftedWindowAttention3d",
    projection="proj",
    fits=_has_fused_qkv,
)
def _shifted_window(self: Any, x: Tensor) -> Tensor:
    """As torchvision's shifted-window attention on pictures and films, with both projections called as modules."""
    given, axes = x.shape[1:-1], tuple(range(1, x.dim() - 1))
    window = list(self.window_size)
    if len(axes) == 3:  # for films a window is never larger than the film, else the map grows to the window
        window = [min(w, s) for w, s in zip(window, given, strict=True)]
    missing = [(0, -s % w) for s, w in zip(given, window, strict=True)]
    x = F.pad(x, [0, 0, *itertools.chain(*reversed(missing))])
    size = x.shape[1:-1]
    # a window as large as the map needs no shift
    shift = [0 if w >= s else d for w, s, d in zip(window, size, self.shift_size, strict=True)]
    if any(shift):
        x = x.roll([-d for d in shift], axes)
    mixed = _attend_in_windows(self, _into_windows(x, window), window, _regions(x, window, shift))
    x = _out_of_windows(F.dropout(self.proj(mixed), self.dropout, self.training), window, size)
    if any(shift):
        x = x.roll(shift, axes)
    return x[(slice(None), *map(slice, given))].contiguous()


def _into_windows(x: Tensor, window: list[int]) -> Tensor:
    """(B, *size, C) to (B * windows, N, C)."""
    dims = len(window)
    for axis in reversed(range(dims)):
        x = x.unflatten(axis + 1, (-1, window[axis]))
    order = [0, *range(1, 2 * dims, 2), *range(2, 2 * dims + 1, 2), 2 * dims + 1]
    return x.permute(order).flatten(dims + 1, 2 * dims).flatten(0, dims)


def _out_of_windows(x: Tensor, window: list[int], size: torch.Size) -> Tensor:
    """The other way round."""
    dims = len(window)
    x = x.unflatten(1, window).unflatten(0, (-1, *(s // w for s, w in zip(size, window, strict=True))))
    pairs = itertools.chain(*((1 + axis, 1 + dims + axis) for axis in range(dims)))
    x = x.permute([0, *pairs, 2 * dims + 1])
    for axis in range(dims):
        x = x.flatten(axis + 1, axis + 2)
    return x


def _attend_in_windows(self: Any, windows: Tensor, size: list[int], regions: Tensor | None) -> Tensor:
    """Heads' outputs (B * windows, N, heads * head_dim)."""
    cosine = getattr(self, "logit_scale", None)
    fused = _cosine_qkv(self.qkv, windows) if cosine is not None else self.qkv(windows)
    q, k, v = fused.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    if cosine is not None:
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * cosine.clamp(max=math.log(100.0)).exp()
    else:
        scores = q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)
    scores = scores + self.get_relative_position_bias(*([size] if len(size) == 3 else []))
    if regions is not None:
        apart = scores.unflatten(0, (-1, len(regions))) + regions[:, None]
        scores = apart.flatten(0, 1)
    weights = F.dropout(scores.softmax(dim=-1), self.attention_dropout, self.training)
    return _merge(weights @ v)


def _cosine_qkv(qkv: nn.Linear, x: Tensor) -> Tensor:
    """Keys have no bias in the second version."""
    out: Tensor = qkv(x)
    if qkv.bias is None:
        return out
    shift = torch.cat([torch.zeros_like(b) if i != 1 else b for i, b in enumerate(qkv.bias.chunk(3))])
    return out - shift


def _regions(x: Tensor, window: list[int], shift: list[int]) -> Tensor | None:
    """-100 between tokens that only lie in one window (windows, N, N) because the map was rolled."""
    if not any(shift):
        return None
    size = x.shape[1:-1]
    label = x.new_zeros(size)
    starts = [sorted({0, s - w, s - d}) for s, w, d in zip(size, window, shift, strict=True)]
    for number, corner in enumerate(itertools.product(*starts)):
        label[tuple(slice(start, None) for start in corner)] = number
    tokens = _into_windows(label[None, ..., None], window).squeeze(-1)
    differ: Tensor = tokens[:, None] != tokens[:, :, None]
    return differ.to(x.dtype) * -100.0


@_adapter(
    "timm.models.vision_transformer.Attention",
    "timm.layers.attention.Attention",
    projection="proj",
    fits=lambda module: _has_fused_qkv(module) and not hasattr(module, "attn_dim"),
)
def _timm_attention(self: Any, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """As the attention of timm's vision transformers before it kept the width of its heads by itself."""
    q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = self.q_norm(q), self.k_norm(k)
    dropout = self.attn_drop.p if self.training else 0.0
    x = _merge(F.scaled_dot_product_attention(q, k, v, attn_mask, dropout))
    norm = getattr(self, "norm", None)
    out: Tensor = self.proj_drop(self.proj(x if norm is None else norm(x)))
    return out


@_adapter("timm.models.beit.Attention", projection="proj", fits=_has_fused_qkv)
def _beit_attention(self: Any, x: Tensor, shared_rel_pos_bias: Tensor | None = None) -> Tensor:
    """As the attention of timm's BEiT: biases beside the weights, and a table of positions."""
    fused = self.qkv(x)
    if self.q_bias is not None:
        fused = fused + torch.cat((self.q_bias, self.k_bias, self.v_bias))
    q, k, v = fused.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    bias = None if self.relative_position_bias_table is None else self._get_rel_pos_bias()
    if shared_rel_pos_bias is not None:
        bias = shared_rel_pos_bias if bias is None else bias + shared_rel_pos_bias
    dropout = self.attn_drop.p if self.training else 0.0
    out: Tensor = self.proj_drop(self.proj(_merge(F.scaled_dot_product_attention(q, k, v, bias, dropout))))
    return out
