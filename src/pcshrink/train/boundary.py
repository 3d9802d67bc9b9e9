"""What happens between epochs: gates go on, budgets are set, lambda rises, dead channels leave, gates are folded."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pcshrink.budget.allocate import Budget, allocate, check, cost_model
from pcshrink.budget.cost_model import CostModel
from pcshrink.errors import ConfigError
from pcshrink.measure import profile
from pcshrink.runtime.run import check_runtime
from pcshrink.shrinker import Shrinker
from pcshrink.train import reshape
from pcshrink.train.checkpoint import load_state, save_state
from pcshrink.train.console import Console
from pcshrink.train.evaluate import Score, evaluate
from pcshrink.train.objective import Objective
from pcshrink.train.observe import Observer
from pcshrink.train.recipe.schema import BudgetSection, DistillSection
from pcshrink.train.session import Session, blank_model, make_model
from pcshrink.train.timetable import FROZEN_FROM, RAISE_FROM, Timetable
from pcshrink.train.weights import load_weights_


class Boundary:
    """Acts on a session at the boundaries of epochs.

    Attributes:
        facts: What was found out on the way, for the final report.
        age: Steps since the weights' average began.
    """

    def __init__(
        self, session: Session, objective: Objective, folder: Path, timetable: Timetable, console: Console,
        observer: Observer,
    ) -> None:  # fmt: skip
        self.session, self.objective, self.timetable, self.console = session, objective, timetable, console
        self.observer = observer
        self.recipe, self.settings = session.recipe, session.recipe.shrink
        self.dense_file = folder / "dense.safetensors"
        self.budget: Budget | None = None
        self.costs: CostModel | None = None
        self.facts: dict[str, Any] = {}
        self.age = 0

    def state(self) -> dict[str, Any]:
        """Plain data for the checkpoint."""
        return {"facts": self.facts, "age": self.age, "limit": self.budget and [self.budget.limit, self.budget.dense]}

    def load(self, state: dict[str, Any]) -> None:
        """Before the session is loaded."""
        self.facts, self.age = dict(state["facts"]), int(state["age"])
        if state["limit"] and self.settings is not None and self.settings.cost_budget is not None:
            self.budget = Budget(self.settings.cost_budget, *state["limit"])

    def resume(self) -> None:
        """After the session is loaded: what can be worked out again."""
        if self.session.shrinker is not None:
            self._measure()
        if self.session.stage != "dense" or self.settings is None:
            self._call_teacher()

    def enter(self, epoch: int) -> None:
        """Before the first step of an epoch."""
        phase = self.timetable.phase(epoch)
        if epoch == 0:
            dense = self.session.model
            if self.session.cut is not None:  # the run goes on with a network that was cut before
                dense = self.session.place(blank_model(self.recipe, self.session.data.num_classes))
            bare = profile(dense, self.session.example)
            paper = profile(dense, self.session.example, "paper")
            self.facts["dense"] = {
                "params": bare.params, "madds": bare.madds, "mem_access": bare.mem_access,
                "paper_madds": paper.madds, "paper_mem_access": paper.mem_access,
            }  # fmt: skip
            self._rehearse()
            if self.settings is None:
                self._call_teacher()
            if phase == "dense":
                self.session.prepare()
        if phase != "dense" and self.session.stage == "dense":
            self._attach()

    def _rehearse(self) -> None:
        """Attach to a copy, to refuse what cannot work before any training."""
        if self.settings is None or self.timetable.phase(0) != "dense":
            return
        if self.recipe.distill is not None and self.recipe.distill.teacher != "dense":
            self._named_teacher(self.recipe.distill)
        if self.settings.latency_budget is not None:
            check_runtime(self.settings.latency_budget.runtime)
        session = copy.copy(self.session)
        shrinker = session.attach()
        if self.settings.cost_budget is not None:
            budget = Budget.of(self.settings.cost_budget, shrinker, session.example)
            check(budget, cost_model(shrinker, session.example, self.settings), self.settings)

    def _attach(self) -> None:
        session = self.session
        assert self.settings is not None
        if session.average is not None:
            session.model = session.average.requires_grad_(True)
        baseline = evaluate(session.model, session.data.val, session.fabric, classes=session.data.num_classes)
        self.facts["dense"] |= baseline.figures()
        self._keep_dense(session.model)
        costs = profile(session.model, session.example)
        shrinker = session.attach()
        self.observer.attached(costs)
        self.facts["channels"] = sum(g.channels for g in shrinker.groups)
        if self.settings.cost_budget is not None:
            self.budget = Budget.of(self.settings.cost_budget, shrinker, session.example)
        self._measure()
        if self.budget is not None and self.costs is not None:
            session.aim(allocate(self.budget, self.costs, self.settings))
        if self.settings.latency_budget is not None:
            self._aim_at_latency(shrinker, self.settings.latency_budget)
        self._call_teacher()
        self.age = 0
        session.prepare()
        self.console.say(
            f"{len(shrinker.groups)} groups with {self.facts['channels']} channels can shrink, "
            f"to {sum(session.targets.values())}; {len(shrinker.refused)} layers stay whole"
        )

    def _aim_at_latency(self, shrinker: Shrinker, section: BudgetSection) -> None:
        """Measure which widths give the asked share of the dense network's time; rank 0 measures for all."""
        from pcshrink.budget.latency import choose_widths

        session, found = self.session, None
        assert self.settings is not None
        assert section.latency is not None
        if session.fabric.is_global_zero:
            self.console.say(f"measuring layers for a latency of {section.latency:g} ({section.runtime}) ...")
            choice = choose_widths(
                shrinker, session.example[:1].repeat_interleave(section.batch, dim=0).cpu(), section.latency,
                runtime=section.runtime, threads=section.threads, align=shrinker.align,
                min_channels=self.settings.min_channels,
            )  # fmt: skip
            found = (choice.keep, choice.reached, choice.note)
        keep, reached, note = session.fabric.broadcast(found)
        session.aim(keep)
        self.facts["latency"] = {"metric": "latency", "convention": section.runtime, "limit": section.latency,
                                 "reached": reached, "share": reached, "note": note}  # fmt: skip
        self.console.say(f"widths for {reached:.3f} of the dense latency chosen" + (f"; {note}" if note else ""))

    def _keep_dense(self, model: nn.Module) -> None:
        if self.session.fabric.is_global_zero:
            save_state(self.dense_file, dict(model.state_dict()))
        self.session.fabric.barrier()

    def _measure(self) -> None:
        assert self.session.shrinker is not None
        assert self.settings is not None
        self.costs = cost_model(self.session.shrinker, self.session.example, self.settings)

    def _call_teacher(self) -> None:
        section = self.recipe.distill
        if section is None:
            return
        if section.teacher == "dense":
            teacher = blank_model(self.recipe, self.session.data.num_classes)
            teacher.load_state_dict(load_state(self.dense_file))
            teacher = self.session.place(teacher).eval()
        else:
            teacher = self._named_teacher(section)
        self.objective.teacher = teacher.requires_grad_(False)

    def _named_teacher(self, section: DistillSection) -> nn.Module:
        classes = self.session.data.num_classes
        teacher, _ = make_model(section.teacher, section.args, classes, pretrained=section.pretrained)
        if section.weights is not None:
            load_weights_(teacher, section.weights)
        teacher = self.session.place(teacher).eval()
        with torch.no_grad():
            shape = tuple(teacher(self.session.example).shape)
        if shape != (len(self.session.example), classes):
            given = f"scores of shape {shape[1:]}, but the data have {classes} classes"
            message = f"distill.teacher {section.teacher!r} gives {given}"
            raise ConfigError(message)
        return teacher

    def before_step(self, place: float) -> None:
        """Blend the gates, if they are to be folded."""
        if self.settings is None or self.session.shrinker is None or self.settings.gates != "fold":
            return
        if self.timetable.phase(int(place)) == "settle":
            self.session.set_gates(blend=self.timetable.blend(place))

    def figures(self, phase: str, pushed: float) -> dict[str, Any]:
        """What to tell about the shrinking after an epoch."""
        shrinker = self.session.shrinker
        if shrinker is None or self.costs is None:
            return dict(self.facts.get("size", {}))
        threshold = shrinker.config.threshold
        left = {g.name: max(int((g.running > threshold).sum()), 1) for g in shrinker.groups}
        madds = self.costs.cost(self.costs.widths(left), "madds")
        whole = "madds" if self.settings is None or self.settings.budget is None else _dense_key(self.settings)
        row = {
            "madds": round(madds),
            "madds_share": madds / self.facts["dense"][whole],
            "dead": self.facts["channels"] - sum(left.values()),
        }
        self.facts["size"] = dict(row)
        if phase == "shrink":
            row |= {"lambda": shrinker.lam, "R": pushed, "highest_selected": reshape.alive_above(self.session)}
        return row

    def leave(self, epoch: int, score: Score | None) -> None:
        """After the last step of an epoch."""
        phase, after = self.timetable.phase(epoch), epoch + 1
        if self.settings is None or self.session.shrinker is None:
            return
        if phase == "shrink":
            self._shrinking(after)
        elif after == self.timetable.fold_epoch() and self.settings.gates == "fold" and self.session.mask is None:
            if after == self.timetable.total:
                return  # the end of the run folds them
            self.session.set_gates(blend=1.0)
            reshape.fold_(self.session)
            self.console.say("the gates are constant now and part of their layers")

    def _shrinking(self, after: int) -> None:
        assert self.settings is not None
        assert self.session.shrinker is not None
        share = self.timetable.through("shrink", after)
        if after == self.timetable.end("shrink"):
            self._finish_shrinking()
            self.observer.cut(after - 1, self.facts["cut"])
            return
        if self.settings.allocation == "global" and share <= FROZEN_FROM:
            assert self.budget is not None
            assert self.costs is not None
            running = {g.name: g.running for g in self.session.shrinker.groups}
            widths = self.session.fabric.broadcast(allocate(self.budget, self.costs, self.settings, running))
            self.session.aim(widths)
        if share >= RAISE_FROM and (reshape.alive_above(self.session) or 0.0) > self.settings.threshold:
            self.session.shrinker.lam_base *= self.settings.raise_rate
        every = self.settings.compact_every
        frozen = self.settings.allocation == "uniform" or share > FROZEN_FROM
        turn = every and (after - self.timetable.first("shrink")) % every == 0
        if turn and frozen and reshape.cut_(self.session, reshape.dead_now(self.session)):
            self._measure()
            self.observer.cut(after - 1)

    def _finish_shrinking(self) -> None:
        """Everything selected leaves: compare gated, masked and compact network, then go on with what is left."""
        session = self.session
        assert self.settings is not None
        assert session.shrinker is not None
        highest = reshape.alive_above(session)
        keep = reshape.final_keep(session)
        plan = session.shrinker.plan(keep)
        gated = evaluate(session.model, session.data.val, session.fabric)
        leak = reshape.leak(session, session.model, plan)
        reshape.mask_(session, keep)
        masked = evaluate(session.model, session.data.val, session.fabric)
        at_cut = {"gated_error": gated.error, "masked_error": masked.error, "leak": leak, "highest_selected": highest}
        if self.settings.compact_every:
            session.mask = None
            reshape.cut_(session, keep)
            session.set_gates(masked=False)
            at_cut["compact_error"] = evaluate(session.model, session.data.val, session.fabric).error
            self._measure()
        self.facts["cut"] = at_cut
        if highest is not None and highest > self.settings.threshold:
            self.console.say(
                f"note: a selected channel still had a salience of {highest:.3f} when it was cut; more epochs.shrink, "
                "a larger shrink.strength or raise_rate would bring it to 0 first"
            )
        self.console.say(
            f"everything selected is cut: error gated {gated.error:.2f} %, masked {masked.error:.2f} %, leak {leak:.4f}"
        )


def _dense_key(settings: Any) -> str:
    return "paper_madds" if settings.budget.convention == "paper" else "madds"
