"""What a teacher said, kept in files of the run, so that it need not be asked again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from pcshrink.errors import CheckpointError, ConfigError


@runtime_checkable
class Repeating(Protocol):
    """Training data that show every image in a few views again and again."""

    views: int

    @property
    def num_samples(self) -> int:
        """Images in the whole set."""
        ...

    def view(self, epoch: int) -> int:
        """Which view an epoch shows."""
        ...

    def samples(self, epoch: int, batch: int) -> Tensor:
        """Which images a batch holds."""
        ...


def check_repeating(source: object) -> Repeating:
    """Give training data back if they repeat their views.

    Raises:
        ConfigError: They draw each anew.
    """
    if not isinstance(source, Repeating) or not source.views:
        message = (
            f"distill.cache: {type(source).__name__} draws every view anew, so a teacher's scores cannot be kept; set "
            "distill.cache: 0, or use a data set in memory such as cifar10"
        )
        raise ConfigError(message)
    return source


class Notes:
    """Scores of a teacher for every view of every image, in float16.

    They are rounded when they are first taken too, so that a run that was stopped gives what one without a stop gives.

    Args:
        folder: Where the files are; one pair for each process.
        source: The training data.
        classes: How many scores an image has.
        rank: This process.

    Raises:
        ConfigError: The data do not repeat their views.
        CheckpointError: The files are those of other data, or cannot be made.
    """

    def __init__(self, folder: Path, source: object, classes: int, rank: int) -> None:
        self.source = source = check_repeating(source)
        shape = (source.views, source.num_samples)
        self._files = folder / f"teacher-scores-{rank}.f16", folder / f"teacher-known-{rank}.u8"
        self._scores = _array(self._files[0], (*shape, classes), np.float16)
        self._known = _array(self._files[1], shape, np.uint8)

    def scores(self, epoch: int, batch: int, ask: Callable[[], Tensor]) -> Tensor:
        """The teacher's scores for a batch; ``ask`` gives them where they are not all known."""
        view, samples = self.source.view(epoch), self.source.samples(epoch, batch).numpy()
        if self._known[view, samples].all():
            return torch.from_numpy(self._scores[view, samples].astype(np.float32))
        said = ask()
        rounded = said.to(torch.float16)
        self._scores[view, samples] = rounded.cpu().numpy()
        self._known[view, samples] = 1  # only now, so that a run that is killed here asks again
        return rounded.to(said.dtype)

    def discard(self) -> None:
        """The run is over: remove the files."""
        for path in self._files:
            path.unlink(missing_ok=True)


def _array(path: Path, shape: tuple[int, ...], kind: type[np.generic]) -> np.ndarray:
    wanted = int(np.prod(shape)) * np.dtype(kind).itemsize
    try:
        if path.exists() and path.stat().st_size != wanted:
            message = (
                f"{path} has {path.stat().st_size} bytes instead of {wanted}; remove it, the teacher is asked again"
            )
            raise CheckpointError(message)
        return np.memmap(path, kind, "r+" if path.exists() else "w+", shape=shape)
    except OSError as error:
        message = f"{path}, which keeps the teacher's scores, cannot be made: {error}"
        raise CheckpointError(message) from error
