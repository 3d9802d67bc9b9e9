"""Muon: SGD in which the filters of convolutions turn by orthogonal steps.

The momentum of a layer's filters, as a matrix with a row for each filter, is replaced by the nearest matrix with
orthogonal rows, so that all directions are learned equally fast, not only those in which the gradient is large (Jordan
et al., 2024). Here a step is measured against the filters themselves: it turns them by an angle and leaves their size
as it is, so it means the same whatever they are scaled by, before a cut and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.surgery.gates import find_gates

ROUNDS = 5  # of the iteration that makes rows orthogonal
# The odd polynomial whose repeated use brings every singular value from (0, 1] close to 1; Jordan et al. chose it for
# its speed, and 0.7 to 1.2 is close enough.
FIRST, THIRD, FIFTH = 3.4445, -4.7750, 2.0315


class Muon(torch.optim.SGD):
    """SGD with momentum; groups of parameters with the option ``turn`` turn instead.

    Args:
        params: Parameters, or groups of them.
        turn: The angle of a step, in units of the learning rate; 0: move as SGD does.
        options: Those of SGD.
    """

    def __init__(self, params: Any, turn: float = 0.0, **options: Any) -> None:
        super().__init__(params, **options)
        self.defaults["turn"] = turn
        for group in self.param_groups:
            group.setdefault("turn", turn)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; gradients of what turns are used up by it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["turn"]:
                for filters in group["params"]:
                    if filters.grad is not None:
                        self._turn(filters, filters.grad, group)
                        filters.grad = None
        super().step()
        return loss

    def _turn(self, filters: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        memory = self.state[filters]
        momentum = memory.setdefault("momentum_buffer", torch.zeros_like(filters))
        momentum.mul_(group["momentum"]).add_(gradient)
        ahead = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        turn_(filters, orthogonal(ahead.flatten(1)).view(filters.shape), group["turn"] * group["lr"])


def turn_(filters: Tensor, way: Tensor, angle: float) -> None:
    """Turn filters by an angle away from ``way``, which is used up; their size stays.

    The momentum has a part along the filters themselves. Left in, it would make them longer with every step.
    """
    size, least = torch.linalg.vector_norm(filters), torch.finfo(filters.dtype).tiny
    way.sub_(filters, alpha=float((way * filters).sum() / size.square().clamp(min=least)))
    way.mul_(math.tan(angle) * size / torch.linalg.vector_norm(way).clamp(min=least))
    filters.sub_(way)
    filters.mul_(size / torch.linalg.vector_norm(filters).clamp(min=least))


def orthogonal(matrix: Tensor) -> Tensor:
    """About the nearest matrix with orthogonal rows of length 1, or columns where there are fewer of these."""
    wide = matrix.shape[0] <= matrix.shape[1]
    x: Tensor = matrix if wide else matrix.T
    x = x / torch.linalg.matrix_norm(x).clamp(min=torch.finfo(x.dtype).tiny)
    for _ in range(ROUNDS):
        square = x @ x.T
        x = FIRST * x + (THIRD * square + FIFTH * square @ square) @ x
    return x if wide else x.T


def turning(model: nn.Module) -> set[nn.Parameter]:
    """What turns: the filters of convolutions that read all channels, but not those of gates.

    A depthwise filter reads one channel, so filters say nothing about each other.
    """
    in_gates = {p for gate in find_gates(model).values() for p in gate.parameters()}
    convolutions = (m for m in model.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d) and m.groups == 1)
    filters = {p for m in convolutions if isinstance(p := m._parameters.get("weight"), nn.Parameter)}
    return filters - in_gates
