"""One known architecture: how it is built and what it is fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from testing.nets import randomise_, settle_norms_

Example = Callable[[torch.dtype, int], Any]


@dataclass(frozen=True)
class Network:
    """An architecture with random weights.

    Attributes:
        name: Its usual name.
        family: The heading it stands under.
        make: Builds it.
        example: Inputs of a type, by seed.
        shown: The size of the input, for the page.
        chooses: Its outputs jump where scores are equal to rounding, as those of detectors.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    example: Example
    shown: str
    chooses: bool = False

    def build(self) -> nn.Module:
        """The network with random weights and norms, in evaluation mode."""
        torch.manual_seed(0)
        model = self.make()
        part = getattr(model, "backbone", model) if self.chooses else model
        try:
            settle_norms_(part, self._samples(part is not model))
        except Exception:  # its training pass wants targets
            randomise_(model)
        return model.eval()

    def _samples(self, bare: bool) -> Any:
        one, two = (self.example(torch.float32, seed) for seed in (3, 4))
        if bare and isinstance(one, tuple) and isinstance(one[0], list):
            return torch.stack([*one[0], *two[0]])
        return torch.cat([one, two]) if isinstance(one, Tensor) else one


def noise(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Noise, by seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def image(side: int, channels: int = 3, *, listed: bool = False, batch: int = 2) -> Example:
    """Two pictures; as a list of single ones for detectors."""

    def example(dtype: torch.dtype, seed: int) -> Any:
        made = noise((batch, channels, side, side), dtype, seed)
        return (list(made),) if listed else made

    return example


def clip(side: int, frames: int) -> Example:
    """A short film, two of them where they are small."""
    return lambda dtype, seed: noise((1 if side > 100 else 2, 3, frames, side, side), dtype, seed)


def pair(side: int) -> Example:
    """Two pictures as two arguments."""
    return lambda dtype, seed: tuple(noise((1, 3, side, side), dtype, s) for s in (seed, seed + 100))


def volume(side: int, channels: int = 1) -> Example:
    """A picture in three dimensions."""
    return lambda dtype, seed: noise((1, channels, side, side, side), dtype, seed)


def sound(length: int) -> Example:
    """Two recordings."""
    return lambda dtype, seed: noise((2, length), dtype, seed)


def named(key: str, inner: Example, **more: Any) -> Example:
    """The same as a keyword argument."""
    return lambda dtype, seed: {key: inner(dtype, seed)} | more


def words(length: int = 12, vocabulary: int = 100, **more: Any) -> Example:
    """Two sentences."""

    def example(dtype: torch.dtype, seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        return {"input_ids": torch.randint(2, vocabulary, (2, length), generator=generator)} | more

    return example
