"""The record of a run, for figures: every step's losses, every epoch's figures, widths and saliences, every cut.

Written as the run goes on (``HistoryWriter``), read back as typed arrays (``History.open``), also while it is written.
What is written is never changed: a run that goes back to a checkpoint notes so, and a reader drops what was undone.
"""

from pcshrink.train.history.read import Cut, Epochs, History, Steps, Trace
from pcshrink.train.history.write import GroupState, HistoryWriter

__all__ = ["Cut", "Epochs", "GroupState", "History", "HistoryWriter", "Steps", "Trace"]
