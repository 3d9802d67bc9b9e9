"""What is told after an epoch: one row for the console, the files, the loggers, the callbacks and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pcshrink.methods.figures import Figure, plain_label


@dataclass(frozen=True, kw_only=True)
class EpochRow:
    """The figures of an epoch; those that an older file does not have are None.

    Attributes:
        epoch: Its number, from 0.
        epochs: How many there are to be.
        phase: ``dense``, ``warmup``, ``shrink`` or ``settle``.
        step: Optimizer steps up to its end.
        loss: The mean task loss.
        penalty: The mean of what the method added to it.
        error: Share of the evaluation images that are wrong, in per cent; None where it was not evaluated.
        val_loss: The loss on these.
        lr: The learning rate of its last step.
        seconds: How long its steps took.
        images_per_second: And how many images that are.
        madds: Multiply-adds left if everything dead were cut; for a dynamic method, of the mean input.
        madds_share: That as a share of the dense network's.
        dead: How many channels are dead; None for a dynamic method.
        figures: What the method tells about itself.
    """

    epoch: int
    epochs: int | None = None
    phase: str = ""
    step: int | None = None
    loss: float | None = None
    penalty: float | None = None
    error: float | None = None
    val_loss: float | None = None
    lr: float | None = None
    seconds: float | None = None
    images_per_second: float | None = None
    madds: int | None = None
    madds_share: float | None = None
    dead: int | None = None
    figures: tuple[Figure, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as a line of ``metrics.jsonl`` has it; the size only where it is known."""
        known = {name: getattr(self, name) for name in COMMON}
        size = {name: getattr(self, name) for name in SIZE if getattr(self, name) is not None}
        return known | size | {figure.key: figure.value for figure in self.figures}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EpochRow:
        """Read a line of ``metrics.jsonl``; numbers that are no field of this class are a method's figures."""
        known = {name: data[name] for name in (*COMMON, *SIZE) if name in data}
        figures = tuple(
            Figure(key, value, plain_label(key))
            for key, value in data.items()
            if key not in known and isinstance(value, (int, float))
        )
        return cls(**known, figures=figures)


SIZE = ("madds", "madds_share", "dead")
COMMON = tuple(field.name for field in fields(EpochRow) if field.name not in (*SIZE, "figures"))
