"""Shrinking in a loop on accelerate."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pcshrink.shrinker import Shrinker


class Shrinking:
    """Takes the place of ``accelerator.backward``, and steps after the optimizer; may be registered for checkpoints.

    Attach before ``accelerator.prepare``::

        shrinking = Shrinking(accelerator, pcs.attach_(model, example, config))
        for batch in loader:
            shrinking.backward(loss_of(model, batch))
            optimizer.step(); optimizer.zero_grad()
            shrinking.step()

    Args:
        accelerator: Of the loop.
        shrinker: What ``attach_`` gave.
    """

    def __init__(self, accelerator: Any, shrinker: Shrinker) -> None:
        self.accelerator, self.shrinker = accelerator, shrinker

    def backward(self, loss: Tensor) -> None:
        """Differentiate the loss and the penalty together."""
        self.accelerator.backward(loss + self.shrinker.penalty())

    def step(self) -> None:
        """After ``optimizer.step()``; where gradients are accumulated, it counts only when the optimizer moved."""
        if self.accelerator.sync_gradients:
            self.shrinker.step()

    def state_dict(self) -> dict[str, Any]:
        """For ``accelerator.register_for_checkpointing``."""
        return self.shrinker.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.shrinker.load_state_dict(state)
