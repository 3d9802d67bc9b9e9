"""The paper's equations: the shrinking loss, its growing rate, and the static mask."""

from __future__ import annotations

import torch
from torch import Tensor

PAPER_RATE = 6e-6 * 256  # preset B: the paper's 6e-6 on the sum over a batch of 256 is this much on its mean
PAPER_STEPS = 60 * 1_281_167 // 256  # of the paper's 60 shrinking epochs on ImageNet, at a learning rate of 0.1
RANGE = 6.0
SLOPE = 1 / 6  # of the hard sigmoid inside its range
FASTEST = 0.2  # how far a bias may move at a step, in units of the hard sigmoid's input
OBJECTION = 1 / 4  # power of a schedule's shortness by which the task objects more
USUAL_GRADIENT = 1e-3  # of a gate's bias: AdamW divides by what it sees of it, SGD does not


def rate(lam_base: float, step: int, total_steps: int, power: float = 2.0) -> float:
    """lambda(t) = lambda_base (t / T) ** power, constant once t passes T."""
    return lam_base * float((min(step, total_steps) / total_steps) ** power)


def travel(lr: float, momentum: float, optimizer: str) -> float:
    """How far a steady gradient of 1 on a bias moves it at each step."""
    return lr / USUAL_GRADIENT if optimizer == "adamw" else lr / (1 - momentum)


def haste(total_steps: int, reach: float) -> float:
    """How many times as far as the optimizer takes them the gates' biases are to move at each step.

    The paper's rate is a price: a channel dies if the task objects to its loss by less. At its full height it carries a
    salience that nothing holds from 0.9 to zero in 21,000 steps; growing over the paper's 300,000 steps, in 179,000. A
    larger rate would be faster, but the task could no longer object, and what is pushed would die in lock-step. So in
    a short schedule the biases move faster instead, under the penalty and under the task alike, and travel as far in
    all as they would in the paper's.

    Args:
        total_steps: Length of the schedule.
        reach: What ``travel`` says of the optimizer.
    """
    return max(_shortness(total_steps) / reach, 1.0)


def unlearned(total_steps: int) -> float:
    """By how much the rate is raised in a schedule that is shorter than the paper's.

    In 300,000 steps the other channels learn to do without those that are pushed, and the task objects less and less.
    In a short schedule it goes on objecting. The power was found on digits: with it a larger K and a larger strength
    both give a smaller network, as in the paper.
    """
    return float(max(_shortness(total_steps), 1.0) ** OBJECTION)


def _shortness(total_steps: int) -> float:
    """How many times longer the paper's schedule is; as far as biases may be hastened."""
    return min(PAPER_STEPS / total_steps, FASTEST / (PAPER_RATE * SLOPE))


def steady_rate(salience: float, steps: float, reach: float) -> float:
    """The lambda that carries a salience to zero in so many steps, if the task does not object.

    Args:
        salience: Where it starts.
        steps: How long it may take.
        reach: How far a steady gradient of 1 on a bias moves it at each step.
    """
    return min(RANGE * salience / steps, FASTEST) / (reach * SLOPE)


def shortest_push(power: float = 2.0) -> int:
    """Steps in which preset B, as fast as it may move, carries a bias across the range one and a half times."""
    return round(1.5 * RANGE * (power + 1) / FASTEST)


def shrinking_loss(salience: Tensor, selected: Tensor) -> Tensor:
    """R = sum of the selected entries, mean over the batch.

    Args:
        salience: (B, C).
        selected: Selection (or weights) of shape (C,), the same for all inputs, or (B, C), one for each input.
    """
    return (salience * selected.to(salience.dtype)).sum(dim=-1).mean()


def keep_mask(running: Tensor, threshold: float, min_channels: int, align: int) -> Tensor:
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
