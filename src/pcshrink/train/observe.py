"""Who watches a run: takes what the trainer has, and hands it to the history and the loggers. Changes nothing."""

from __future__ import annotations

import datetime
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcshrink.artifact.saving import versions
from pcshrink.measure.result import Profile
from pcshrink.shrinker import Group
from pcshrink.surgery.plan import PrunePlan
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.history import GroupState, HistoryWriter
from pcshrink.train.loggers import Logger, Loggers, chosen
from pcshrink.train.precision import products_of
from pcshrink.train.session import Session

COUNTED = ("conv", "linear")  # kinds of layers whose costs are told one by one


class Observer:
    """Records one run; silent in all processes but the first.

    Args:
        session: What is watched.
        folder: The run's folder.
        loggers: More loggers than the recipe names.
    """

    def __init__(self, session: Session, folder: Path, loggers: Sequence[Logger] = ()) -> None:
        self.session = session
        first = bool(session.fabric.is_global_zero)
        self.history = HistoryWriter(folder, enabled=first)
        self.loggers = Loggers([*chosen(session.recipe.output, folder), *loggers] if first else [])

    def start(self) -> None:
        """A new run begins."""
        facts = run_facts(self.session)
        self.history.start(facts)
        self.loggers.start(facts, 0)

    def rewind(self, step: int, epoch: int) -> None:
        """The run goes on from a checkpoint; what was recorded after it is undone."""
        self.history.rewind(step, epoch)
        self.loggers.start(run_facts(self.session), epoch)

    def attached(self, costs: Profile, made: Profile | None = None) -> None:
        """The gates went on; costs of the dense network, and where the method made layers of its own, with these."""
        shrinker = self.session.shrinker
        if shrinker is not None:
            self.history.network(network_facts(shrinker.groups, shrinker.refused, costs, made))

    def step(self, loss: float, penalty: float, *, pushing: bool) -> None:
        """Task loss and penalty of a step, before the schedule moves on; ``pushing`` in the shrinking phase."""
        shrinker = self.session.shrinker
        pushed = shrinker.method.pushed if shrinker is not None and pushing else 0.0
        self.history.step(loss + penalty, loss, penalty, pushed)

    def flush(self) -> None:
        """A checkpoint is about to be written."""
        self.history.flush()

    def epoch(self, row: EpochRow) -> None:
        """The end of an epoch, before anything is cut."""
        if self.history.enabled or self.loggers.active:
            groups = group_states(self.session)
            self.history.epoch(row, groups)
            self.loggers.epoch(row.to_dict(), groups)

    def cut(self, epoch: int, facts: Mapping[str, object] | None = None) -> None:
        """Channels left after an epoch."""
        plan = self.session.mask if self.session.mask is not None else self.session.cut
        if plan is not None:
            self.history.cut(epoch, facts or {}, {name: len(kept) for name, kept in plan.groups.items()})

    def close(self) -> None:
        """The run ends, well or not."""
        self.history.flush()
        self.loggers.close()


def run_facts(session: Session) -> dict[str, Any]:
    """What is known of a run when it starts and is not in its recipe."""
    called = Path(sys.argv[0]).name == "pcshrink" or Path(sys.argv[0]).parts[-2:] == ("pcshrink", "__main__.py")
    return {
        "command": shlex.join(["pcshrink", *sys.argv[1:]]) if called else "",
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": f"{platform.system()} {platform.machine()}, {session.fabric.device}",
        "products": "float64" if session.dtype == torch.float64 else products_of(session.fabric),
        "threads": torch.get_num_threads(),
        "batches": len(session.data.train),
        "classes": list(session.data.classes),
        "images": {"train": session.data.train.num_samples, "eval": session.data.val.num_samples},
        "recipe": session.recipe.model_dump(mode="json"),
    }


def network_facts(
    groups: Sequence[Group], stays: Mapping[str, str], costs: Profile, made: Profile | None = None
) -> dict[str, Any]:
    """Which channels leave together, which layers stay and why, and what every layer costs in the dense network.

    Args:
        groups: Of the whole network, before any cut.
        stays: Layer -> why its output channels stay.
        costs: Of the network without gates.
        made: Where the method puts layers of its own into the place of others: of the network with these. A layer's
            ``parts`` are what stands in its place, with their costs before any cut.
    """
    parts = {row.name: row.madds for row in made.layers if row.kind in COUNTED} if made is not None else {}
    return {
        "groups": [
            {"name": g.name, "channels": g.channels, "writers": list(g.writers), "readers": list(g.readers)}
            for g in groups
        ],
        "stays": dict(stays),
        "layers": [
            {"name": row.name, "kind": row.kind, "madds": row.madds, "params": row.params}
            | _in_its_place(row.name, parts)
            for row in costs.layers
            if row.kind in COUNTED
        ],
    }


def _in_its_place(layer: str, parts: Mapping[str, int]) -> dict[str, Any]:
    found = {name: madds for name, madds in parts.items() if name.startswith(f"{layer}.")}
    return {"parts": found} if found else {}


def group_states(session: Session) -> list[GroupState]:
    """All groups as they are now; none before gates are attached and after they are folded."""
    shrinker = session.shrinker
    if shrinker is None:
        return []
    scores, selected, asleep = shrinker.method.scores(), shrinker.selected(), shrinker.method.asleep()
    return [
        _state(g, scores[g.name], selected[g.name], asleep[g.name], session.cut, session.mask) for g in shrinker.groups
    ]


def _state(
    group: Group,
    scores: torch.Tensor,
    selected: torch.Tensor,
    asleep: torch.Tensor,
    cut: PrunePlan | None,
    mask: PrunePlan | None,
) -> GroupState:
    # Composed cuts name the original channels; a mask names those of the network as it is now.
    original = cut.groups.get(group.name) if cut is not None else None
    masked = mask.groups.get(group.name) if mask is not None else None
    channels = np.arange(group.channels) if original is None else np.asarray(original)
    salience, pushed = scores.detach().float().cpu().numpy(), selected.cpu().numpy()
    dead = asleep.cpu().numpy()
    if masked is not None:
        channels, salience, pushed, dead = channels[masked], salience[masked], np.zeros(len(masked), bool), dead[masked]
    alive = max(int((~dead).sum()), 1)
    return GroupState(name=group.name, channels=channels, salience=salience, selected=pushed, alive=alive)
