"""Hooks into a run: inherit, override what you need, and pass objects to ``train(..., callbacks=[...])``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from pcshrink.train.loop import Loop
    from pcshrink.train.session import Session


class Callback:
    """Every hook does nothing by default. What one raises ends the run, so that nothing is skipped silently."""

    def on_start(self, loop: Loop) -> None:
        """The run begins or goes on; nothing was trained yet."""

    def before_step(self, loop: Loop) -> None:
        """An optimizer step begins."""

    def on_loss(self, loop: Loop, loss: Tensor) -> Tensor:
        """The task loss of a batch is known; what is given back is minimised."""
        return loss

    def after_step(self, loop: Loop) -> None:
        """An optimizer step was taken."""

    def before_evaluation(self, loop: Loop) -> None:
        """The steps of an epoch were taken, and the network is about to be evaluated."""

    def after_epoch(self, loop: Loop, row: Mapping[str, object]) -> None:
        """An epoch was trained and evaluated.

        Args:
            loop: The run.
            row: The figures of the epoch by the keys that its line in ``metrics.jsonl`` has, see
                ``pcshrink.train.epoch_row.EpochRow``; what the method tells about itself comes last.
        """

    def before_cut(self, session: Session, keep: dict[str, Tensor]) -> None:
        """Channels are about to be cut out."""

    def after_cut(self, session: Session) -> None:
        """Channels were cut out."""


class Callbacks(Callback):
    """Several as one."""

    def __init__(self, parts: Sequence[Callback] = ()) -> None:
        self.parts = tuple(parts)

    def on_start(self, loop: Loop) -> None:
        """Tell all."""
        for part in self.parts:
            part.on_start(loop)

    def before_step(self, loop: Loop) -> None:
        """Tell all."""
        for part in self.parts:
            part.before_step(loop)

    def on_loss(self, loop: Loop, loss: Tensor) -> Tensor:
        """Ask one after the other."""
        for part in self.parts:
            loss = part.on_loss(loop, loss)
        return loss

    def after_step(self, loop: Loop) -> None:
        """Tell all."""
        for part in self.parts:
            part.after_step(loop)

    def before_evaluation(self, loop: Loop) -> None:
        """Tell all."""
        for part in self.parts:
            part.before_evaluation(loop)

    def after_epoch(self, loop: Loop, row: Mapping[str, object]) -> None:
        """Tell all."""
        for part in self.parts:
            part.after_epoch(loop, row)

    def before_cut(self, session: Session, keep: dict[str, Tensor]) -> None:
        """Tell all."""
        for part in self.parts:
            part.before_cut(session, keep)

    def after_cut(self, session: Session) -> None:
        """Tell all."""
        for part in self.parts:
            part.after_cut(session)
