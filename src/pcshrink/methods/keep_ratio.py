"""Keep ratios that can be trained: chances of channels that add up to a ratio, its gradient, and its price."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LEAST_CHANCE = 0.01  # a channel is never ruled out altogether
LEAST_SLOPE = 1e-6  # where all chances are 0 or 1, their sum still answers to the ratio
SMALLEST = 1e-12  # scores below this count as this
HALVINGS = 50
NUDGE = 1e-3  # in theta, for the slope of the cost
LONGEST = 1.0  # in theta, before the slope of the cost is taken again


def shares(scores: Tensor, real: Tensor, ratios: Tensor, sharpness: float) -> Tensor:
    """The s = 1 / (1 + (b / beta_1) ^ -beta_2), with beta_1 such that the mean chance of a group is its ratio.

    Args:
        scores: b (G, C), one row for each group, filled up to the same length.
        real: Which entries are channels (G, C).
        ratios: alpha (G,).
        sharpness: beta_2.
    """
    logs = scores.clamp(min=SMALLEST).log()
    width = 50 / sharpness
    low = logs.where(real, torch.inf).amin(1) - width
    high = logs.where(real, -torch.inf).amax(1) + width
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mean = (chances(torch.sigmoid(sharpness * (logs - middle[:, None]))) * real).sum(1) / real.sum(1)
        too_many = mean > ratios
        low, high = torch.where(too_many, middle, low), torch.where(too_many, high, middle)
    return torch.sigmoid(sharpness * (logs - ((low + high) / 2)[:, None]))


def chances(share: Tensor) -> Tensor:
    """The p = min(1, 0.01 + s)."""
    return (LEAST_CHANCE + share).clamp(max=1.0)


def ratio_gradient(gradient: Tensor, share: Tensor, real: Tensor) -> Tensor:
    """dL/dalpha (G,) = C sum_i dL/dp_i q_i / sum_j q_j, q = dp/dlog(beta_1) = s (1 - s) up to a factor.

    Args:
        gradient: dL/dp (G, C).
        share: s (G, C).
        real: Which entries are channels (G, C).
    """
    slope = (share * (1 - share) * (chances(share) < 1) + LEAST_SLOPE) * real
    return real.sum(1) * (gradient * slope).sum(1) / slope.sum(1)


def project(theta: Tensor, cost: Callable[[Tensor], float], allowed: float) -> Tensor:
    """Move theta (G,) down the gradient of the cost until it is allowed, or until the cost no longer falls."""
    for _ in range(100):
        now = cost(theta)
        if now <= allowed:
            break
        slopes = torch.stack([_nudged(theta, index, cost) - now for index in range(len(theta))]) / NUDGE
        if not bool((slopes > 0).any()):
            break
        direction = slopes / slopes.max()
        step = (now - allowed) / float(slopes @ direction)
        theta = theta - min(step * 1.001, LONGEST) * direction
    return theta


def _nudged(theta: Tensor, index: int, cost: Callable[[Tensor], float]) -> Tensor:
    more = theta.clone()
    more[index] += NUDGE
    return torch.tensor(cost(more), dtype=theta.dtype)
