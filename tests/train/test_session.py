"""A session hands out what is trained, as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcshrink.surgery.gates import find_gates
from pcshrink.train.callbacks import Callback
from pcshrink.train.loop import Loop
from pcshrink.train.run import train
from testing.training import tiny

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("one_thread")]


class Switch(Callback):
    """Switches the gates of the model, as a method does, and looks at those of the average."""

    def __init__(self) -> None:
        self.seen: list[tuple[set[object], set[object]]] = []

    def after_step(self, loop: Loop) -> None:
        session = loop.session
        if session.shrinker is None or session.average is None or self.seen:
            return
        for value in (0.25, 0.0):
            session.shrinker.settle(value)
            gates = find_gates(session.average.model).values()
            before = {gate.blend for gate in gates}  # type: ignore[attr-defined]
            assert session.best is session.average.model
            self.seen.append((before, {gate.blend for gate in gates}))  # type: ignore[attr-defined]


def test_the_average_is_handed_out_with_the_switches_of_the_model(tmp_path: Path) -> None:
    watched = Switch()
    recipe = tiny(train={"ema": 0.9}, epochs={"warmup": 1, "shrink": 1}, shrink__gates="keep", distill=None)
    train(recipe, tmp_path, quiet=True, callbacks=[watched])
    assert watched.seen == [({0.0}, {0.25}), ({0.25}, {0.0})]
