"""Shrinking inside the ``Trainer`` of transformers: one callback."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from pcshrink.errors import SalienceError
from pcshrink.shrinker import Shrinker


class ShrinkCallback(TrainerCallback):
    """Adds the penalty to the loss that the model gives, and steps after the optimizer has.

    Attach before the optimizer is made::

        shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(total_steps=steps))
        Trainer(model, ..., callbacks=[ShrinkCallback(shrinker)]).train()

    The model must compute its loss itself, as those of transformers do when they are given labels; with a loss of your
    own, add ``shrinker.penalty()`` to it.

    Args:
        shrinker: What ``attach_`` gave.
    """

    def __init__(self, shrinker: Shrinker) -> None:
        self.shrinker = shrinker
        self._hook: Any = None
        self._added = False

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Watch what the model gives."""
        self._hook = self.shrinker.model.register_forward_hook(self._add)

    def _add(self, model: Any, _: Any, output: Any) -> Any:
        loss = output.get("loss") if hasattr(output, "get") else None
        if model.training and loss is not None:
            output["loss"] = loss + self.shrinker.penalty()
            self._added = True
        return output

    def on_step_end(self, *_: object, **__: object) -> None:
        """Take the batch into account.

        Raises:
            SalienceError: There was no loss to add the penalty to.
        """
        if not self._added:
            message = (
                "the model gave no loss to add the penalty to; give it labels, or add shrinker.penalty() in the "
                "compute_loss of your Trainer"
            )
            raise SalienceError(message)
        self._added = False
        self.shrinker.step()

    def on_train_end(self, *_: object, **__: object) -> None:
        """Leave the model alone again."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
