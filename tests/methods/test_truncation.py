"""Truncation that goes on to the end: every sample chooses for itself, and nothing is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from benchmarks.trial.rows import EPOCHS, OWN_KNOB, RIVALS, TRIAL
from benchmarks.trial.running import recipe_of
from pcshrink.methods.registry import method_class
from pcshrink.methods.truncation import TruncationByInput, TruncationByInputConfig
from pcshrink.surgery.gates import find_gates
from testing.dynamic import LONGER, check_run, gated


def test_every_sample_loses_its_own_lowest_channels_also_in_use() -> None:
    net, shrinker, images = gated(TruncationByInputConfig(), widths=(10, 10, 10))
    heard: dict[str, Tensor] = {}
    for name, gate in find_gates(net).items():
        gate.listener = lambda factor, name=name: heard.update({name: factor})  # type: ignore[misc]
    net(images)
    assert all(bool((factor > 0).all()) for factor in heard.values())  # the phase has not begun
    shrinker.method.start()
    net(images)
    for factor in heard.values():
        assert (factor == 0).sum(dim=1).tolist() == [3] * 5
    assert all(bool(kept.all()) for kept in shrinker.method.keep().values())


def test_what_was_saved_goes_on_cutting() -> None:
    before, after = (gated(TruncationByInputConfig(ratio=0.5))[1].method for _ in range(2))
    before.start()
    after.load_state_dict(before.state_dict())
    assert isinstance(after, TruncationByInput)
    assert {name: gate.truncated for name, gate in after.salience_gates.items()} == {
        name: round(0.5 * gate.spec.channels) for name, gate in after.salience_gates.items()
    }


def test_rows_of_the_trial_have_the_same_epochs_and_say_where_there_is_no_budget() -> None:
    for row in (*TRIAL, *RIVALS):
        run = f"{row.name}-0"
        recipe = recipe_of(run, Path("data/cifar10"))
        assert recipe.shrink is not None
        takes_budget = method_class(recipe.shrink.method).takes_budget()
        assert row.title.endswith(OWN_KNOB) == (not takes_budget), run
        assert takes_budget or recipe.shrink.budget is None, run
        assert sum(recipe.epochs.model_dump().values()) == sum(EPOCHS.values()), run


@pytest.mark.train
def test_a_run_has_no_budget_but_a_measured_cost(tmp_path: Path) -> None:
    result = check_run(tmp_path, {"method": "truncation-input"}, epochs=LONGER)
    assert result.budget is None
    assert result.compact["madds"] < 0.8 * result.dense["madds"]
