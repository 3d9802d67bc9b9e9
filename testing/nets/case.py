"""One tiny network with what is expected of it, and the table of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from testing.nets.settle import settle_


@dataclass(frozen=True)
class Case:
    """One tiny net and what is expected of it."""

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    groups: frozenset[frozenset[str]]
    refused: dict[str, str] = field(default_factory=dict)

    def model(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
        """A fresh copy in evaluation mode, the same for the same seed."""
        return settle_(self.build, seed).to(dtype).eval()

    def inputs(self, dtype: torch.dtype = torch.float32, seed: int = 1) -> Any:
        """An example input: a tensor, or a tuple of them."""
        generator = torch.Generator().manual_seed(seed)
        made = tuple(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in self.shapes)
        return made[0] if len(made) == 1 else made


CASES: dict[str, Case] = {}


def net(*shapes: tuple[int, ...], groups: str, refused: dict[str, str] | None = None) -> Callable[[Any], Any]:
    """Put a module class (or a function that builds a module) into the table."""

    def register(build: Any) -> Any:
        name = build.__name__
        together = frozenset(frozenset(g.split("+")) for g in groups.split())
        CASES[name] = Case(name, build, shapes, together, refused or {})
        return build

    return register
