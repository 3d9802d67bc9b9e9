"""What is found out while a run goes on survives its checkpoints, also those of earlier versions."""

from __future__ import annotations

import json
from typing import Any

from pcshrink.budget.cost_model import LayerTimes
from pcshrink.train.facts import Aim, Costs, Dense, Facts, Timed

TIMES = LayerTimes(3.0, {"conv1": 1.0}, {"conv1": 0.5})
AIM = Aim(0.5, "eager", 0.51, "", {"conv1": 8})


def facts() -> Facts:
    return Facts(dense=Dense(Costs(1, 2, 3, 4, 5), {"error": 8.8}), channels=16, timed=Timed(TIMES, AIM))


def stored(made: Facts) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(made.to_dict()))
    return read


def test_they_come_back() -> None:
    assert Facts.from_dict(stored(facts())) == facts()


def test_earlier_versions_kept_what_was_measured_among_the_others() -> None:
    data = stored(facts())
    assert Facts.from_dict(data | data.pop("timed")) == facts()
