"""What a latency budget needs of a run: measured layers, and whole networks timed beside the dense one."""

from __future__ import annotations

from torch import nn

from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import LayerTimes
from pcshrink.budget.latency import Family, LatencyChoice, Search, choose
from pcshrink.measure.layers import LayerTable
from pcshrink.shrinker import Shrinker
from pcshrink.train.console import Console
from pcshrink.train.facts import Aim, Timed
from pcshrink.train.session import Session, blank_model
from pcshrink.train.together import from_first


class Stopwatch:
    """Measures for all processes of a run; rank 0 does it, and what it finds is kept among the facts.

    Args:
        session: What is trained.
        shrinker: Of its network, or of a copy.
        timed: What was measured before, and where layer times and the chosen widths are kept.
        console: Where to say what is measured.
        budget: Runtime, threads and batch, and the share where time is what is limited; by default the usual ones.
    """

    def __init__(
        self, session: Session, shrinker: Shrinker, timed: Timed, console: Console, budget: BudgetConfig | None
    ) -> None:
        self.session, self.shrinker, self.timed, self.console = session, shrinker, timed, console
        self.budget = budget or BudgetConfig(madds=1.0)  # only where and how to measure is read of it
        self._table: LayerTable | None = None

    def times(self) -> LayerTimes:
        """What the layers take, measured once in a run."""
        if self.timed.times is None:
            self.console.say(f"measuring layers ({self.budget.runtime}) ...")
            self.timed.times = from_first(self.session.fabric, lambda: self._search().times())
        return self.timed.times

    def widths(self, family: Family | None) -> dict[str, int]:
        """Widths of a family that were measured to take the share asked for; without one all groups give the same."""
        if family is None and self.timed.aim is not None:
            return self.timed.aim.keep  # a run that goes on, or a network that was cut: these widths were found before
        choice = from_first(self.session.fabric, lambda: self._choose(family))
        self.timed.aim = Aim(choice.asked, self.budget.runtime, choice.reached, choice.note, choice.keep)
        note = f"; {choice.note}" if choice.note else ""
        self.console.say(f"widths for {choice.reached:.3f} of the dense latency chosen{note}")
        return choice.keep

    def _choose(self, family: Family | None) -> LatencyChoice:
        search = self._search()
        return choose(search, self.budget.latency or 1.0, search.widths if family is None else family)

    def _search(self) -> Search:
        budget = self.budget
        if self._table is None:
            self._table = LayerTable(budget.runtime, budget.threads)
        example = self.session.example[:1].repeat_interleave(budget.batch, dim=0).cpu()
        return Search(self.shrinker, example, self._table, dense=self._dense())

    def _dense(self) -> nn.Module:
        """The uncompressed network; its time does not depend on its weights."""
        return blank_model(self.session.recipe, self.session.data.num_classes).eval()
