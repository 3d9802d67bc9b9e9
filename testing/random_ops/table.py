"""The table of operations, and what their entries choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

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
