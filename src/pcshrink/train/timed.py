"""What a latency budget needs of a run: measured layers, and whole networks timed beside the dense one."""

from __future__ import annotations

from torch import nn

from pcshrink.budget.allocate import Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel, LayerTimes
from pcshrink.budget.latency import Family, LatencyChoice, Search, choose
from pcshrink.budget.latency_target import LatencyTarget
from pcshrink.errors import OutOfReachError
from pcshrink.measure.layers import LayerTable
from pcshrink.shrinker import Shrinker
from pcshrink.train.console import Console
from pcshrink.train.facts import Aim, Facts
from pcshrink.train.session import Session, blank_model
from pcshrink.train.together import from_first

OUT_OF_REACH = 1.25  # the sum of the layers' times predicts the network's well enough to refuse beyond this


class Stopwatch:
    """Measures for all processes of a run; rank 0 does it, and what it finds is kept in the facts.

    Args:
        session: What is trained.
        facts: Where layer times and the chosen widths are kept.
        console: Where to say what is measured.
        budget: Runtime, threads and batch, and the share where time is what is limited; by default the usual ones.
    """

    def __init__(self, session: Session, facts: Facts, console: Console, budget: BudgetConfig | None) -> None:
        self.session, self.facts, self.console = session, facts, console
        self.budget = budget or BudgetConfig(madds=1.0)  # only where and how to measure is read of it
        self._table: LayerTable | None = None

    def times(self, shrinker: Shrinker) -> LayerTimes:
        """What the layers take, measured once in a run."""
        if self.facts.times is None:
            self.console.say(f"measuring layers ({self.budget.runtime}) ...")
            self.facts.times = from_first(self.session.fabric, lambda: self._search(shrinker).times())
        return self.facts.times

    def target(self, shrinker: Shrinker, costs: CostModel) -> LatencyTarget:
        """The budget as the method is given it; ``costs`` must know the times."""
        times, share = self.times(shrinker), self.budget.latency or 1.0
        limit = Limit(self.budget, share * times.dense, times.dense)
        target = LatencyTarget(
            limit, costs, shrinker.config, shrinker.align, "fold", choose=lambda family: self._choose(shrinker, family)
        )
        least = target.cost_of(target.least) / times.dense
        if least > OUT_OF_REACH * share:
            message = (
                f"shrink.budget.latency: {share:g} is out of reach: with the narrowest widths the layers still take "
                f"about {least:.2f} of the dense network's time; ask for more"
            )
            raise OutOfReachError(message)
        return target

    def _choose(self, shrinker: Shrinker, family: Family | None) -> dict[str, int]:
        if family is None and self.facts.aim is not None:
            return self.facts.aim.keep  # a run that goes on, or a network that was cut: these widths were found before
        choice = from_first(self.session.fabric, lambda: self._widths(shrinker, family))
        self.facts.aim = Aim(choice.asked, self.budget.runtime, choice.reached, choice.note, choice.keep)
        note = f"; {choice.note}" if choice.note else ""
        self.console.say(f"widths for {choice.reached:.3f} of the dense latency chosen{note}")
        return choice.keep

    def _widths(self, shrinker: Shrinker, family: Family | None) -> LatencyChoice:
        search = self._search(shrinker)
        return choose(search, self.budget.latency or 1.0, search.widths if family is None else family)

    def _search(self, shrinker: Shrinker) -> Search:
        budget = self.budget
        if self._table is None:
            self._table = LayerTable(budget.runtime, budget.threads)
        example = self.session.example[:1].repeat_interleave(budget.batch, dim=0).cpu()
        return Search(shrinker, example, self._table, shrinker.align, shrinker.config.min_channels, dense=self._dense())

    def _dense(self) -> nn.Module:
        """The uncompressed network; its time does not depend on its weights."""
        return blank_model(self.session.recipe, self.session.data.num_classes).eval()
