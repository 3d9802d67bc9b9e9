"""A wrong input is told apart from a wrong cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.errors import TraceError, VerificationError
from pcshrink.proof.verify import outputs_of

pytestmark = pytest.mark.unit
EXAMPLE = torch.randn(2, 3, 8, 8)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))


@pytest.mark.parametrize("gates", ["keep", "fold"])
@pytest.mark.parametrize("example", [torch.randn(2, 5, 8, 8), torch.randn(2, 3, 9, 9), (EXAMPLE, EXAMPLE), "image"])
def test_compact_on_an_input_the_users_model_does_not_take(example: Any, gates: Any) -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    plan = shrinker.plan({"0": torch.arange(8) < 4})
    with pytest.raises(TraceError, match="does not run on"):
        pcs.compact(shrinker.model, plan, example, gates=gates)


def test_verify_tells_which_of_the_two_does_not_run() -> None:
    wide = nn.Sequential(nn.Flatten(), nn.Linear(3 * 9 * 9, 4))
    with pytest.raises(TraceError, match="the reference model does not run on"):
        pcs.verify(net(), wide, torch.randn(2, 3, 9, 9))
    with pytest.raises(VerificationError, match="the other model does not run on"):
        pcs.verify(net(), wide, EXAMPLE)


@pytest.mark.parametrize(("users_own", "error"), [(True, TraceError), (False, VerificationError)])
def test_the_name_of_a_model_does_not_decide(users_own: bool, error: type[Exception]) -> None:
    for who in ("the reference model", "the compact model"):
        with pytest.raises(error, match=f"{who} does not run on"):
            outputs_of(net(), torch.randn(2, 5, 8, 8), who, users_own=users_own)
