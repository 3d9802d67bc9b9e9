"""The report of a run that goes on: refreshed every few epochs, and written once more at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcshrink.report.page import write_report
from pcshrink.train.history import GroupState
from pcshrink.train.loggers import Logger

log = logging.getLogger(__name__)
FILE = "report.html"
REFRESH = 10  # seconds after which a browser loads the page of a running run again


class ReportLogger(Logger):
    """Writes ``report.html`` into a run's folder while it goes on.

    Args:
        folder: The run's folder.
        every: Epochs between two of them; 0 for never.
    """

    name = "report"

    def __init__(self, folder: Path, every: int) -> None:
        self.folder, self.every = folder, every

    def epoch(self, row: Mapping[str, Any], groups: Sequence[GroupState]) -> None:
        """An epoch is over."""
        if self.every and (row["epoch"] + 1) % self.every == 0:
            write_report([self.folder], self.folder / FILE, refresh=REFRESH)


def final_report(folder: Path, runs: Sequence[Path] | None = None) -> Path | None:
    """Write the report of a finished run; None, with a warning, if that fails: the run itself is done and saved.

    Args:
        folder: Where the page goes.
        runs: The runs it is about; by default the one in the folder.
    """
    try:
        write_report(list(runs or [folder]), folder / FILE)
    except Exception as error:
        log.warning("the report was not written: %s", " ".join(str(error).split()))
        return None
    return folder / FILE
