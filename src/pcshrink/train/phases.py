"""What happens between epochs: gates go on, budgets are set, dead channels leave, gates are folded."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from pcshrink.artifact import read
from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel
from pcshrink.budget.fixed import FixedWidths
from pcshrink.budget.target import target_of, tell_prices
from pcshrink.errors import ConfigError
from pcshrink.measure import profile
from pcshrink.methods.figures import Figure
from pcshrink.methods.prepared import mark_of
from pcshrink.methods.select import in_steps
from pcshrink.runtime.run import check_runtime
from pcshrink.shrinker import Shrinker
from pcshrink.train import reshape
from pcshrink.train.checkpoint import save_state
from pcshrink.train.console import Console
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.evaluate import Score, evaluate
from pcshrink.train.facts import Costs, Cut, Dense, Facts, Size
from pcshrink.train.measured import Gauge, MeasuredTarget
from pcshrink.train.notes import Notes, check_repeating
from pcshrink.train.objective import Objective
from pcshrink.train.observe import Observer
from pcshrink.train.session import Session, blank_model
from pcshrink.train.teacher import call_teacher, check_teacher
from pcshrink.train.timed import Stopwatch
from pcshrink.train.timetable import Timetable
from pcshrink.train.together import from_first


class Phases:
    """Acts on a session at the boundaries of epochs.

    Attributes:
        facts: What was found out on the way, for the final report.
    """

    def __init__(
        self,
        session: Session,
        objective: Objective,
        folder: Path,
        timetable: Timetable,
        console: Console,
        observer: Observer,
    ) -> None:
        self.session, self.objective, self.timetable, self.console = session, objective, timetable, console
        self.observer = observer
        self.recipe, self.settings = session.recipe, session.recipe.shrink
        self.folder, self.dense_file = folder, folder / "dense.safetensors"
        self.costs: CostModel | None = None
        self.gauge: Gauge | None = None
        self.facts = Facts()

    def state(self) -> dict[str, Any]:
        """Plain data for the checkpoint."""
        return self.facts.to_dict()

    def load(self, state: dict[str, Any]) -> None:
        """After the session is loaded: what was found out, and what can be worked out again."""
        self.facts = Facts.from_dict(state)
        if self.session.shrinker is not None:
            self._measure(self.session.shrinker)
        if self.session.stage != "dense" or self.settings is None:
            self._call_teacher()

    @property
    def limit(self) -> Limit | None:
        """The budget as numbers, if there is one that can be counted."""
        if self.facts.limit is None or self.settings is None or self.settings.cost_budget is None:
            return None
        return Limit(self.settings.cost_budget, *self.facts.limit)

    def enter(self, epoch: int) -> None:
        """Before the first step of an epoch."""
        phase = self.timetable.phase(epoch)
        if epoch == 0:
            self._begin()
            if phase == "dense":
                self.session.prepare()
        if phase != "dense" and self.session.stage == "dense":
            self._attach()
        if phase == "shrink" and epoch == self.timetable.first("shrink"):
            self._start_shrinking(self.session.gated)

    def _start_shrinking(self, shrinker: Shrinker) -> None:
        shrinker.method.start()
        if shrinker.method.restarts:
            self.session.restart()

    def _begin(self) -> None:
        dense = self.session.model
        if self.session.cut is not None:  # the run goes on with a network that was cut before
            dense = self.session.place(blank_model(self.recipe, self.session.data.num_classes))
        self.facts.dense = Dense(Costs.of(dense, self.session.example))
        self._rehearse()
        if self.settings is None:
            self._call_teacher()

    def _rehearse(self) -> None:
        """Attach to a copy, to refuse what cannot work before any training."""
        if self.settings is None or self.timetable.phase(0) != "dense":
            return
        check_teacher(self.session)
        if self.recipe.distill is not None and self.recipe.distill.cache:
            check_repeating(self.session.data.train)
        if self.settings.latency_budget is not None:
            check_runtime(self.settings.latency_budget.runtime)
        session = copy.copy(self.session)
        shrinker = session.attach()
        self._aim_like(shrinker)
        budget = self.settings.budget
        if budget is not None and not shrinker.method.static:
            limit = Limit.of(budget, shrinker, session.example)
            shrinker.method.set_activity_target(MeasuredTarget(limit, Gauge(session)))
        elif budget is not None:
            target = self._target(budget, shrinker, self._cost_model(shrinker), self._stopwatch(shrinker))
            if budget.latency is None:  # to meet a latency the method would have whole networks measured
                shrinker.method.set_target(target)
        self._say_concerns(shrinker)

    def _aim_like(self, shrinker: Shrinker) -> None:
        """Take the widths of another network, if the recipe wants that; complains about those that cannot be."""
        if self.settings is not None and self.settings.like is not None:
            shrinker.aim(widths_like(self.settings.like))

    def _say_concerns(self, shrinker: Shrinker) -> None:
        concerns = shrinker.method.concerns()
        if shrinker.method.static and not self.recipe.epochs.settle:
            concerns = [*concerns, "there is no settling phase, so the network ends as bad as the cut leaves it"]
        for concern in concerns:
            self.console.say(f"note: {concern}")

    def _attach(self) -> None:
        session, settings = self.session, self.session.settings
        session.take_average()
        baseline = evaluate(session.model, session.data.val, session.fabric, classes=session.data.num_classes)
        if self.facts.dense is not None:
            self.facts.dense.score = baseline.figures()
        self._keep_dense(session.model)
        costs = profile(session.model, session.example)
        shrinker = session.attach()
        made = profile(session.model, session.example) if mark_of(session.model) is not None else None
        self.observer.attached(costs, made)
        self.facts.channels = sum(g.channels for g in shrinker.groups)
        if settings.cost_budget is not None:
            limit = Limit.of(settings.cost_budget, shrinker, session.example)
            self.facts.limit = (limit.limit, limit.dense)
        self._aim_like(shrinker)
        if settings.like is not None:
            self.facts.widths = {g.name: g.channels - g.k for g in shrinker.groups}
        self._measure(shrinker)
        self._call_teacher()
        session.prepare()
        if self.timetable.phase(0) != "dense":  # otherwise they were said when that was rehearsed
            self._say_concerns(shrinker)
        self.console.say(_attached_line(shrinker, self.facts.channels))

    def _keep_dense(self, model: nn.Module) -> None:
        from_first(self.session.fabric, lambda: save_state(self.dense_file, dict(model.state_dict())))

    def _cost_model(self, shrinker: Shrinker) -> CostModel:
        settings = self.session.settings
        return CostModel.of(
            shrinker, self.session.example, gates=settings.gates, convention=settings.convention, before=self.costs
        )

    def _measure(self, shrinker: Shrinker) -> None:
        """Know what the network costs, and tell the method what it is to meet."""
        if not shrinker.method.static:
            self.gauge = Gauge(self.session)
            if self.limit is not None:
                shrinker.method.set_activity_target(MeasuredTarget(self.limit, self.gauge))
            return
        self.costs, watch = self._cost_model(shrinker), self._stopwatch(shrinker)
        tell_prices(shrinker, self.costs, watch)
        budget = self.session.settings.budget
        if budget is not None:
            shrinker.method.set_target(self._target(budget, shrinker, self.costs, watch))
        elif self.facts.widths is not None and sum(self.facts.widths.values()) < self.facts.channels:
            shrinker.method.set_target(FixedWidths(self.facts.widths, self.facts.channels))

    def _target(self, budget: BudgetConfig, shrinker: Shrinker, costs: CostModel, watch: Stopwatch) -> CostTarget:
        gates = self.session.settings.gates
        return target_of(budget, shrinker, self.session.example, costs, watch, gates=gates, limit=self.limit)

    def _stopwatch(self, shrinker: Shrinker) -> Stopwatch:
        return Stopwatch(self.session, shrinker, self.facts.timed, self.console, self.session.settings.budget)

    def _call_teacher(self) -> None:
        if self.recipe.distill is not None:
            teacher = call_teacher(self.session, self.recipe.distill, self.dense_file)
            self.objective.learn_from(teacher, self._notes() if self.recipe.distill.cache else None)

    def _notes(self) -> Notes:
        session = self.session
        return Notes(self.folder, session.data.train, session.data.num_classes, session.fabric.global_rank)

    def before_step(self, place: float) -> None:
        """Make the gates more constant, if they are to be folded."""
        if self.settings is None or self.session.shrinker is None:
            return
        settling = self.settings.gates == "fold" and self.timetable.phase(int(place)) == "settle"
        self.session.shrinker.settle(self.timetable.settled(place) if settling else None)

    def complete(self, row: EpochRow) -> EpochRow:
        """The row of an epoch, with what there is to tell about the shrinking."""
        shrinker, dense = self.session.shrinker, self.facts.dense
        if shrinker is not None and self.costs is not None and dense is not None:
            gone = shrinker.method.asleep()
            left = {g.name: max(g.channels - int(gone[g.name].sum()), 1) for g in shrinker.groups}
            madds = self.costs.cost(self.costs.widths(left), "madds")
            paper = self.session.settings.convention == "paper"
            whole = dense.costs.paper_madds if paper else dense.costs.madds
            self.facts.size = Size(round(madds), madds / whole, self.facts.channels - sum(left.values()))
        elif self.gauge is not None:
            madds, share = self.gauge.madds(self.session.settings.convention)
            self.facts.size = Size(round(madds), share, dead=None)
        if self.facts.size is not None:
            row = replace(row, **asdict(self.facts.size))
        if row.phase == "shrink" and shrinker is not None:
            method = shrinker.method
            row = replace(row, figures=tuple(Figure(k, v, method.label(k)) for k, v in method.figures().items()))
        return row

    def leave(self, epoch: int) -> None:
        """After the last step of an epoch."""
        phase, after = self.timetable.phase(epoch), epoch + 1
        if self.settings is None or self.session.shrinker is None:
            return
        if phase == "shrink":
            self._shrinking(self.session.shrinker, after)
        elif phase == "settle":
            self.session.shrinker.method.after_settling_epoch(self.timetable.through("settle", after))
        if after == self.timetable.fold_epoch() != self.timetable.total:  # finishing the run folds them as well
            self._fold(self.session.gated)

    def _fold(self, shrinker: Shrinker) -> None:
        if self.session.settings.gates == "fold" and self.session.mask is None:
            shrinker.settle(1.0)
            self.session.fold_()
            self.console.say("the gates are constant now and part of their layers")

    def _shrinking(self, shrinker: Shrinker, after: int) -> None:
        shrinker.method.after_epoch(self.timetable.through("shrink", after))
        if after == self.timetable.end("shrink"):
            if shrinker.method.finish():
                self.session.restart()
            if shrinker.method.static:
                self._finish_shrinking(shrinker)
            return
        every = self.session.settings.compact_every
        if every and (after - self.timetable.first("shrink")) % every == 0:
            # What is left must be aligned: later cuts count from it.
            keep = {name: in_steps(~gone, shrinker.align[name]) for name, gone in shrinker.method.gone().items()}
            if reshape.cut_(self.session, reshape.agreed(self.session, keep)):
                self._measure(self.session.gated)
                self.observer.cut(after - 1)

    def _finish_shrinking(self, shrinker: Shrinker) -> None:
        """What is to go leaves: compare gated, masked and compact network, then go on with what is left."""
        session = self.session
        keep = reshape.agreed(session, shrinker.method.keep())
        if all(bool(mask.all()) for mask in keep.values()) and session.cut is None:
            self.console.say(f"note: nothing leaves: {shrinker.method.diagnosis()}")
        highest = shrinker.method.highest_cut(keep)
        plan = shrinker.plan(keep)
        gated = evaluate(session.model, session.data.val, session.fabric)
        leak = reshape.leak(session, session.model, plan)
        session.mask_(keep)
        masked = evaluate(session.model, session.data.val, session.fabric)
        compact_error = None
        if session.settings.compact_every:
            session.unmask_()
            if reshape.cut_(session, keep):
                self._measure(session.gated)
            compact_error = evaluate(session.model, session.data.val, session.fabric).error
        cut = Cut(gated.error, masked.error, masked.loss - gated.loss, leak, highest, compact_error)
        self.facts.cut = cut
        self.observer.cut(self.timetable.end("shrink") - 1, asdict(cut))
        self.console.say(_cut_line(cut, gated))


def _attached_line(shrinker: Shrinker, channels: int) -> str:
    whole = f"{len(shrinker.refused)} layers stay whole"
    if not shrinker.method.static:
        return f"{len(shrinker.method.gates)} layers have gates that choose for each input; {whole}"
    return f"{len(shrinker.groups)} groups with {channels} channels can shrink; {whole}"


def _cut_line(cut: Cut, gated: Score) -> str:
    highest = "" if cut.highest is None else f", highest score cut {cut.highest:.2g}"
    return (
        f"what is to go is cut: error {gated.error:.2f} % before, {cut.masked_error:.2f} % after, "
        f"loss {cut.loss_jump:+.4f}, leak {cut.leak:.2g}{highest}"
    )


def widths_like(folder: Path) -> dict[str, int]:
    """The widths of a finished run or a saved network.

    Raises:
        ConfigError: It was never cut.
    """
    home = folder / "model" if (folder / "model").is_dir() else folder
    plan = read(home).plan
    if plan is None:
        message = f"shrink.like: {folder} holds a network that was never cut, so it has no widths to take"
        raise ConfigError(message)
    return {name: len(kept) for name, kept in plan.groups.items()}
