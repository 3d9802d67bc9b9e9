"""The growing shrinking rate, and a strength that means the same for every length of training."""

from __future__ import annotations

# Preset B carries an entry this many times across the hard sigmoid's range of 6, if nothing pushes back.
REACH_OF_B = 4.0
RANGE = 6.0
SLOPE = 1 / 6  # of the hard sigmoid inside its range


def rate(lam_base: float, step: int, total_steps: int, power: float = 2.0) -> float:
    """lambda(t) = lambda_base (t / T) ** power, constant once t passes T."""
    return lam_base * float((min(step, total_steps) / total_steps) ** power)


def base_rate(strength: float, total_steps: int, lr: float, momentum: float = 0.9, power: float = 2.0) -> float:
    """The lambda_base that has a given strength.

    A penalty lambda on the batch mean moves the input of the hard sigmoid by lr / (1 - momentum) * lambda / 6 a step,
    through the bias alone. Summed over the growing schedule this is lambda_base * lr / (1 - momentum) / 6 * T /
    (power + 1), which is set to ``strength * REACH_OF_B`` times the sigmoid's range.
    """
    travel_per_lambda = lr / (1 - momentum) * SLOPE * total_steps / (power + 1)
    return strength * REACH_OF_B * RANGE / travel_per_lambda
