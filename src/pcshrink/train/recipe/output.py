"""The recipe's section on what is written, and how often."""

from __future__ import annotations

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
        onnx: Export the compact network.
        latency: Measure dense and compact latency at the end.
    """

    checkpoint_minutes: Positive = 10.0
    checkpoint_steps: AtLeastOne | None = None
    eval_every: AtLeastOne = 1
    tensorboard: bool = False
    wandb: bool = False
    mlflow: bool = False
    report: Count = 0
    onnx: bool = False
    latency: bool = True
