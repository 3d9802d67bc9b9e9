"""The recipe's section on what is written, and how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pcshrink.export.registry import EXPORT_FORMATS
from pcshrink.train.recipe.section import AtLeastOne, Count, Positive, Section


class OutputSection(Section):
    """What is written, and how often.

    Attributes:
        checkpoint_minutes: Longest time between two checkpoints; one is also written after each epoch.
        checkpoint_steps: Steps between two further checkpoints.
        eval_every: Epochs between two evaluations; the end of each phase is always evaluated.
        tensorboard: Write TensorBoard event files as well as JSON lines.
        wandb: Log to Weights & Biases; set it up by its own variables (WANDB_PROJECT, WANDB_MODE, ...).
        mlflow: Log to MLflow; set it up by its own variables (MLFLOW_TRACKING_URI, ...).
        report: Epochs after which ``report.html`` is written again; 0 writes it only at the end.
        export: Formats to write the final network in, beside its own folder: ``onnx``, ``pt2``, ``openvino``, one that
            was registered, or ``package.module:callable``.
        onnx: The same as ``export: [onnx]``.
        latency: Measure dense and compact latency at the end.
    """

    checkpoint_minutes: Positive = 10.0
    checkpoint_steps: AtLeastOne | None = None
    eval_every: AtLeastOne = 1
    tensorboard: bool = False
    wandb: bool = False
    mlflow: bool = False
    report: Count = 0
    export: list[Annotated[str, AfterValidator(EXPORT_FORMATS.check)]] = Field(default_factory=list)
    onnx: bool = False
    latency: bool = True

    @property
    def formats(self) -> list[str]:
        """All export formats asked for, each once."""
        return list(dict.fromkeys([*(["onnx"] if self.onnx else []), *self.export]))
