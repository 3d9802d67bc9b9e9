"""The paper's equations: the shrinking loss, its growing rate, and the static mask."""

from __future__ import annotations

import torch
from torch import Tensor

# Preset B: the paper's 6e-6 on the sum over a batch of 256 is this much on its mean; a short schedule needs more.
PAPER_RATE = 6e-6 * 256
ADAMW_RATE = 0.02  # AdamW's steps do not grow with the gradient: a penalty only has to outweigh the task
RANGE = 6.0
SLOPE = 1 / 6  # of the hard sigmoid inside its range
SLOW, FASTEST = 0.005, 0.2  # how far a bias may move at a step, in units of the hard sigmoid's input


def rate(lam_base: float, step: int, total_steps: int, power: float = 2.0) -> float:
    """lambda(t) = lambda_base (t / T) ** power, constant once t passes T."""
    return lam_base * float((min(step, total_steps) / total_steps) ** power)


def base_rate(
    strength: float, total_steps: int, lr: float, momentum: float = 0.9, power: float = 2.0, optimizer: str = "sgd"
) -> float:
    """The lambda_base that has a given strength.

    A penalty lambda on the batch mean moves the input of the hard sigmoid by lr / (1 - momentum) * lambda / 6 a step,
    through the bias alone. Summed over the growing schedule this is lambda_base * lr / (1 - momentum) / 6 * T /
    (power + 1). Preset B is the paper's own rate, at which the task can object, plus what carries a bias across the
    sigmoid's range within the schedule, which matters for short ones.
    """
    if optimizer == "adamw":
        return strength * ADAMW_RATE
    travel_per_lambda = lr / (1 - momentum) * SLOPE * total_steps / (power + 1)
    return strength * (PAPER_RATE + RANGE / travel_per_lambda)


def largest_rate(total_steps: int, lr: float, momentum: float = 0.9, optimizer: str = "sgd") -> float:
    """The largest lambda worth using.

    What is pushed faster than a task loss can object, or the rest of the network adapt, dies whether it is needed or
    not. Short schedules may push faster, since nothing would die in them otherwise, but never above ``FASTEST``.
    """
    if optimizer == "adamw":
        return 1.0
    speed = min(max(SLOW, 5 * RANGE / total_steps), FASTEST)
    return speed / (lr / (1 - momentum) * SLOPE)


def steady_rate(salience: float, steps: float, lr: float, momentum: float = 0.9, optimizer: str = "sgd") -> float:
    """The lambda that carries a salience to zero in so many steps, if the task does not object."""
    if optimizer == "adamw":
        return ADAMW_RATE
    speed = min(RANGE * salience / steps, FASTEST)
    return speed / (lr / (1 - momentum) * SLOPE)


def beyond_adamw(speed: float, lr: float) -> float:
    """What of a bias's speed no gradient can give under AdamW, which moves it by about the learning rate a step."""
    return max(speed - lr, 0.0)


def shortest_push() -> int:
    """Steps of a schedule below which the largest rate is bound by ``FASTEST``."""
    return round(5 * RANGE / FASTEST)


def shrinking_loss(salience: Tensor, selected: Tensor) -> Tensor:
    """R = sum of the selected entries, mean over the batch.

    Args:
        salience: (B, C).
        selected: Selection (or weights) of shape (C,), the same for all inputs, or (B, C), one for each input.
    """
    return (salience * selected.to(salience.dtype)).sum(dim=-1).mean()


def keep_mask(running: Tensor, threshold: float, min_channels: int = 1, align: int = 1) -> Tensor:
    """The mask 1[s-bar > threshold], with at least ``min_channels`` kept and the number kept rounded up to ``align``.

    In float32 the average of exact zeros stalls near 6e-45 and never is 0, hence the threshold.
    """
    keep = running > threshold
    wanted = max(int(keep.sum()), min(min_channels, len(keep)))
    if align > 1 and len(keep) >= align:
        wanted = min(-(-wanted // align) * align, len(keep))
    if wanted > int(keep.sum()):
        keep = torch.zeros_like(keep).scatter(0, running.topk(wanted).indices, True)
    return keep
