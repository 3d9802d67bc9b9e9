"""Shrinking inside a Lightning ``Trainer``: one callback."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pcshrink.errors import SalienceError
from pcshrink.shrinker import Shrinker


class ShrinkCallback(Callback):
    """Adds the penalty to the loss before it is differentiated, and steps after the optimizer has.

    Attach before the optimizer is made, so that it knows the gates::

        shrinker = pcs.attach_(task.model, example, pcs.ShrinkConfig(total_steps=steps))
        Trainer(callbacks=[ShrinkCallback(shrinker)]).fit(task, loader)

    Args:
        shrinker: What ``attach_`` gave.
    """

    def __init__(self, shrinker: Shrinker) -> None:
        self.shrinker = shrinker
        self._steps_seen = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count from where the run is."""
        self._steps_seen = trainer.global_step

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Add the penalty to the loss itself: what a callback returns is not used.

        Raises:
            SalienceError: The loss cannot be changed any more.
        """
        scaler = getattr(trainer.precision_plugin, "scaler", None)  # the loss is scaled by now
        scale = float(scaler.get_scale()) if scaler is not None else 1.0
        penalty = self.shrinker.penalty() * (scale / trainer.accumulate_grad_batches)
        try:
            loss.add_(penalty.to(loss.dtype))
        except RuntimeError as error:
            message = (
                f"the penalty cannot be added to the loss of {type(pl_module).__name__} any more; return the loss plus "
                "shrinker.penalty() from training_step instead of using this callback"
            )
            raise SalienceError(message) from error

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        """Step where the optimizer has stepped; with accumulation that is not after every batch."""
        if trainer.global_step != self._steps_seen:
            self._steps_seen = trainer.global_step
            self.shrinker.step()

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return self.shrinker.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.shrinker.load_state_dict(state_dict)
