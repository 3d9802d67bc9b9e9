"""Random networks: every cut is exact, or refused with a reason."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from testing.random_nets import build, check

COUNT = 60


@pytest.mark.equivalence
@pytest.mark.slow
def test_every_cut_is_exact_or_refused() -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=COUNT,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one_network(data: st.DataObject) -> None:
        torch.manual_seed(0)
        net = build(lambda n: data.draw(st.integers(0, n - 1)))
        outcome = check(net)
        seen[outcome.kind] += 1
        assert outcome.kind != "failed", f"{outcome.detail}\n{net.script}"

    one_network()
    assert seen.total() == COUNT
    assert seen["equal"] > COUNT / 2, "a library that refuses everything would pass as well"
    assert seen["late"] <= COUNT / 50, "what cannot be cut must be known before training"
