"""Loggers that people use beside ours: TensorBoard, Weights & Biases, MLflow, behind one small interface.

No logger can stop a run: one that raises is switched off with one warning.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcshrink.common.files import write_text
from pcshrink.train.history import GroupState
from pcshrink.train.recipe.output import OutputSection

log = logging.getLogger(__name__)
IDS = "logger-ids.json"


class Logger:
    """What a logger may do; every method does nothing by default.

    Attributes:
        name: For messages.
    """

    name = "logger"

    def start(self, facts: Mapping[str, object], epoch: int) -> None:
        """A run begins, or goes on before this epoch; packages are imported here, not earlier."""

    def epoch(self, row: Mapping[str, object], groups: Sequence[GroupState]) -> None:
        """An epoch is over.

        Args:
            row: The figures of the epoch by the keys that its line in ``metrics.jsonl`` has.
            groups: The groups while they have gates.
        """

    def close(self) -> None:
        """The run ends."""


class Loggers:
    """Several loggers as one; those that fail are dropped."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self.active = list(loggers)

    def start(self, facts: Mapping[str, object], epoch: int) -> None:
        """A run begins, or goes on before this epoch."""
        self._each("start", facts, epoch)

    def epoch(self, row: Mapping[str, object], groups: Sequence[GroupState]) -> None:
        """An epoch is over."""
        self._each("epoch", row, groups)

    def close(self) -> None:
        """The run ends."""
        self._each("close")
        self.active = []

    def _each(self, method: str, *arguments: object) -> None:
        for logger in tuple(self.active):
            try:
                getattr(logger, method)(*arguments)
            except Exception as error:
                self.active.remove(logger)
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                log.warning("%s is switched off, the run goes on: %s", logger.name, reason)


def chosen(output: OutputSection, folder: Path) -> list[Logger]:
    """The loggers that a recipe asks for."""
    made: list[tuple[bool, Logger]] = [
        (output.tensorboard, TensorBoard(folder)),
        (output.wandb, WeightsAndBiases(folder)),
        (output.mlflow, MLflow(folder)),
    ]
    return [logger for wanted, logger in made if wanted]


def scalars(row: Mapping[str, object]) -> dict[str, float]:
    """The numbers of an epoch."""
    return {k: v for k, v in row.items() if isinstance(v, (int, float)) and k not in ("epoch", "epochs")}


def widths(groups: Sequence[GroupState]) -> dict[str, float]:
    """How many channels of each group are alive."""
    return {f"width/{g.name}": g.alive for g in groups}


class TensorBoard(Logger):
    """Scalars, widths and histograms of the scores, in ``tensorboard/`` of the run's folder."""

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self._writer: Any = None

    def start(self, facts: Mapping[str, object], epoch: int) -> None:
        """Open the event file; TensorBoard hides the steps that are run again."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._writer = SummaryWriter(str(self.folder), purge_step=epoch)

    def epoch(self, row: Mapping[str, object], groups: Sequence[GroupState]) -> None:
        """One event for each figure."""
        for name, value in {**scalars(row), **widths(groups)}.items():
            self._writer.add_scalar(name, value, row["epoch"])
        for group in groups:
            if group.salience is not None:
                self._writer.add_histogram(f"salience/{group.name}", group.salience, row["epoch"])
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WeightsAndBiases(Logger):
    """Weights & Biases; project, place and mode are set by its own variables, such as WANDB_MODE=offline."""

    name = "Weights & Biases"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._run: Any = None

    def start(self, facts: Mapping[str, Any], epoch: int) -> None:
        """Open a run, or the one that this folder had."""
        import wandb

        self.close()
        self._run = wandb.init(
            dir=str(self.folder), name=self.folder.name, id=_remembered(self.folder, "wandb") if epoch else None,
            resume="allow", config=dict(facts.get("recipe", {})), settings=wandb.Settings(silent=True, init_timeout=60),
        )  # fmt: skip
        _remember(self.folder, "wandb", self._run.id)

    def epoch(self, row: Mapping[str, Any], groups: Sequence[GroupState]) -> None:
        """One call for the whole epoch."""
        import wandb

        shown = {f"salience/{g.name}": wandb.Histogram(g.salience) for g in groups if g.salience is not None}
        self._run.log({**scalars(row), **widths(groups), **shown}, step=int(row["epoch"]))

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()
            self._run = None


class MLflow(Logger):
    """MLflow; server and experiment are set by its own variables, such as MLFLOW_TRACKING_URI."""

    name = "MLflow"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mlflow: Any = None

    def start(self, facts: Mapping[str, Any], epoch: int) -> None:
        """Open a run, or the one that this folder had."""
        import mlflow

        self.close()
        known = _remembered(self.folder, "mlflow") if epoch else None
        run = mlflow.start_run(run_id=known, run_name=None if known else self.folder.name)
        self._mlflow = mlflow
        _remember(self.folder, "mlflow", run.info.run_id)
        if not known:
            mlflow.log_dict(dict(facts.get("recipe", {})), "recipe.json")

    def epoch(self, row: Mapping[str, Any], groups: Sequence[GroupState]) -> None:
        """One call for the whole epoch."""
        self._mlflow.log_metrics({**scalars(row), **widths(groups)}, step=int(row["epoch"]))

    def close(self) -> None:
        """End the run."""
        if self._mlflow is not None:
            self._mlflow.end_run()
            self._mlflow = None


def _remembered(folder: Path, name: str) -> str | None:
    return _known(folder).get(name)


def _remember(folder: Path, name: str, value: str) -> None:
    write_text(folder / IDS, json.dumps({**_known(folder), name: value}))


def _known(folder: Path) -> dict[str, str]:
    """What the loggers' runs are called; nothing where that was not kept, or cannot be read."""
    try:
        return {str(name): str(value) for name, value in json.loads((folder / IDS).read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError):
        return {}
