"""Small networks of the families that people bring, with the groups they must have and the layers that must stay.

``FAMILIES`` is the table: name -> how to build it, its inputs, the writers of its groups, pieces of refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import utils
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@dataclass(frozen=True)
class Family:
    """One small network and what is expected of it."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    groups: str  # writers of a group joined by +, groups separated by spaces
    refused: dict[str, str] = field(default_factory=dict)

    def model(self) -> nn.Module:
        """A fresh network in float64 and evaluation mode, the same every time, with no constant left in it."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = self.build().double().eval()
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.numel() > 1 and tensor.is_floating_point() and bool(tensor.min() == tensor.max()):
                    tensor.data.add_(torch.rand_like(tensor) / 2)
        return model


FAMILIES: dict[str, Family] = {}


def noise(*shape: int) -> Callable[[int], Tensor]:
    """Noise of a shape, by seed."""
    return lambda seed: torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def words(*shape: int, below: int = 20) -> Callable[[int], Any]:
    """Numbers of words, by seed."""
    return lambda seed: {"input_ids": torch.randint(1, below, shape, generator=torch.Generator().manual_seed(seed))}


def family(
    name: str, inputs: Callable[[int], Any], groups: str, refused: dict[str, str] | None = None, **options: Any
) -> Callable[[Any], Any]:
    """Put a class (or a function that builds a module) with its options into the table."""

    def register(build: Any) -> Any:
        FAMILIES[name] = Family(lambda: build(**options), inputs, groups, refused or {})
        return build

    return register


IMAGE, SOUND = noise(3, 3, 12, 12), noise(3, 2, 16)
OUT = {"head": "network output"}
COMPUTED = {"inputs": SOUND, "groups": "first up+outer inner wide+apart", "refused": OUT}


@family("weight norm", **COMPUTED, wrap=parametrizations.weight_norm)
@family("weight norm of whole tensors", **COMPUTED, wrap=parametrizations.weight_norm, dim=None)
@family("weight norm of columns", **COMPUTED, wrap=parametrizations.weight_norm, dim=1)
@family("weight norm by hooks", **COMPUTED, wrap=utils.weight_norm)
@family("spectral norm", **COMPUTED, wrap=parametrizations.spectral_norm)
@family("spectral norm by hooks", **COMPUTED, wrap=utils.spectral_norm)
class Vocoder(nn.Module):
    """Up-sampling and a residual branch, as in GANs for sound."""

    def __init__(self, wrap: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()

        def computed(layer: nn.Module) -> nn.Module:
            return wrap(layer, **options)

        self.first = computed(nn.Conv1d(2, 12, 5, padding=2))
        self.up = computed(nn.ConvTranspose1d(12, 8, 4, 2, 1))
        self.inner, self.outer = computed(nn.Conv1d(8, 6, 3, padding=1)), computed(nn.Conv1d(6, 8, 1))
        self.wide, self.apart = computed(nn.Conv1d(8, 10, 1)), computed(nn.Conv1d(10, 10, 3, padding=1, groups=10))
        self.head = computed(nn.Linear(10, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.up(F.leaky_relu(self.first(x))))
        x = x + self.outer(F.leaky_relu(self.inner(x)))
        return self.head(F.relu(self.apart(F.relu(self.wide(x)))).mean(-1))


class OwnScale(nn.Module):
    """A parametrisation that nothing is known about beyond its operations."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / weight.abs().amax()


@family("unknown parametrisation", SOUND, "b", OUT | {"a": "taken over the channels"})
class Parametrised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv1d(2, 8, 3), nn.Conv1d(8, 6, 3), nn.Linear(6, 4)
        utils.parametrize.register_parametrization(self.a, "weight", OwnScale())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.b(F.relu(self.a(x)))).mean(-1))


@family("group norms", IMAGE, "stem+second first join", OUT)
class Diffusion(nn.Module):
    """Norms before activations, a residual stream, and a norm whose groups reach over two joined tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(8, 16)
        self.first, self.inner = nn.Conv2d(16, 12, 3, padding=1), nn.GroupNorm(6, 12)
        self.second, self.both = nn.Conv2d(12, 16, 3, padding=1), nn.GroupNorm(8, 32)
        self.join, self.last, self.head = nn.Conv2d(32, 12, 1), nn.GroupNorm(4, 12), nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.stem(x)
        x = skip + self.second(F.silu(self.inner(self.first(F.silu(self.norm(skip))))))
        x = F.silu(self.both(torch.cat([x, skip], dim=1)))
        return self.head(F.silu(self.last(self.join(x))))


@family("one group", IMAGE, "b", OUT | {"a": "normalises over all channels together"})
class OneGroup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Conv2d(3, 8, 3), nn.GroupNorm(1, 8), nn.Conv2d(8, 6, 1)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.b(F.relu(self.norm(self.a(x))))))


@family("recurrent", IMAGE, "a b", OUT, kind=nn.LSTM)
@family("gated recurrent", IMAGE, "a b", OUT, kind=nn.GRU)
@family("packed", IMAGE, "a b", OUT, kind=nn.GRU, packed=True)
class Reader(nn.Module):
    """Convolutions, then a recurrent network over the columns, as for text in pictures and for speech."""

    def __init__(self, kind: Any, packed: bool = False) -> None:
        super().__init__()
        self.packed = packed
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 12, 3, padding=1)
        self.rnn = kind(12, 7, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.b(F.relu(self.norm(self.a(x))))).mean(2).transpose(1, 2)
        if self.packed:
            lengths = torch.tensor([12, 9, 5])
            out, _ = pad_packed_sequence(self.rnn(pack_padded_sequence(x, lengths, batch_first=True))[0], True)
            return self.head(out)
        return self.head(self.rnn(x)[0])


@family("recurrent cells", noise(3, 6, 8), "a", OUT | {"start": "starts from them as its state"})
class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.start, self.cell, self.head = nn.Linear(8, 10), nn.Linear(8, 7), nn.GRUCell(10, 7), nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.tanh(self.start(x[:, 0]))
        for step in range(x.shape[1]):
            state = self.cell(F.relu(self.a(x[:, step])), state)
        return self.head(state)


@family("grouped queries", noise(2, 6, 24), "block.q+block.k+block.v block.gate+block.up", OUT)
@family("every query its key", noise(2, 6, 24), "block.q+block.k+block.v block.gate+block.up", OUT, keys=6)
class Decoder(nn.Module):
    """Rotary positions, fewer keys than queries, a gated inner layer."""

    def __init__(self, keys: int = 3) -> None:
        super().__init__()
        self.block, self.head = DecoderBlock(24, queries=6, keys=keys, head_dim=4), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x))


class DecoderBlock(nn.Module):
    def __init__(self, width: int, queries: int, keys: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim, self.shared_by = head_dim, queries // keys
        self.q, self.o = nn.Linear(width, queries * head_dim), nn.Linear(queries * head_dim, width)
        self.k, self.v = nn.Linear(width, keys * head_dim), nn.Linear(width, keys * head_dim)
        self.gate, self.up, self.down = nn.Linear(width, 16), nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(self.shared_by, dim=1) for t in (rotate(k), v))
        mixed = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def rotate(x: Tensor) -> Tensor:
    """Turn pairs of features by their position."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] / 10 ** torch.arange(half, dtype=x.dtype)
    cos, sin = (torch.cat([f(angle)] * 2, dim=-1) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


@family(
    "optical flow", noise(2, 6, 16, 16), "features.0 features.2 context.0 context.2 gates+new+start motion",
    {"head": "joins them with a tensor of fixed width"},
)  # fmt: skip
class Flow(nn.Module):
    """Two pictures, all pairs of places compared, and an estimate that is refined by the same layers again."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 10, 3, 2, 1), nn.ReLU(), nn.Conv2d(10, 8, 3, 2, 1))
        self.context = nn.Sequential(nn.Conv2d(3, 10, 3, 2, 1), nn.ReLU(), nn.Conv2d(10, 12, 3, 2, 1))
        self.start = nn.Conv2d(12, 8, 1)
        self.motion = nn.Conv2d(16 + 2, 6, 3, padding=1)
        self.gates, self.new = nn.Conv2d(14, 8, 3, padding=1), nn.Conv2d(14, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        one, two = (self.features(part).flatten(2) for part in x.split(3, dim=1))
        pairs = (one.transpose(1, 2) @ two).unflatten(1, (4, 4)).permute(0, 3, 1, 2)
        state, flow = torch.tanh(self.start(self.context(x[:, :3]))), x.new_zeros(len(x), 2, 4, 4)
        for _ in range(2):
            inputs = torch.cat([state, F.relu(self.motion(torch.cat([pairs, flow], dim=1)))], dim=1)
            state = state + torch.sigmoid(self.gates(inputs)) * torch.tanh(self.new(inputs))
            flow = flow + self.head(state)
        return flow


@family("spectrogram", noise(2, 1, 256), "a b", {"head": "is_same_size"})
class Separator(nn.Module):
    """Sound through its spectrum and back, complex numbers on the way, and lengths compared by the code."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1), nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        window = torch.hann_window(32, dtype=x.dtype)
        spectrum = torch.stft(x[:, 0], 32, 16, window=window, return_complex=True)
        parts = torch.view_as_real(spectrum).permute(0, 3, 1, 2)
        mask = self.head(F.gelu(self.b(F.glu(torch.cat([F.gelu(self.a(parts))] * 2, dim=1), dim=1))))
        if not mask.is_same_size(parts):
            raise ValueError("lengths differ")
        masked = torch.view_as_complex((mask * parts).permute(0, 2, 3, 1).contiguous())
        return torch.istft(masked, 32, 16, window=window, length=x.shape[-1])


@family("speech synthesis", noise(3, 4, 8), "a b", {"head": "fixed width", "pre": "random number"})
class Speaker(nn.Module):
    """Step by step with cells, and dropout that is never off."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Conv1d(8, 6, 3, padding=1)
        self.rnn = nn.LSTM(6, 5, batch_first=True)
        self.pre, self.cell, self.head = nn.Linear(4, 6), nn.LSTMCell(6 + 5, 7), nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.rnn(F.relu(self.b(F.relu(self.norm(self.a(x))))).transpose(1, 2))[0].mean(1)
        state, frame, frames = None, x.new_zeros(len(x), 4), []
        for _ in range(3):
            seen = F.dropout(F.relu(self.pre(frame)), 0.5, training=True)
            state = self.cell(torch.cat([seen, memory], dim=1), state)
            frame = self.head(state[0])
            frames.append(frame)
        return torch.stack(frames)
