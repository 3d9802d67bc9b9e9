"""Recordings without the arithmetic are those of the full pass, or give way to it; the model itself is not touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pcshrink.errors import TraceError
from pcshrink.graph.record import Graph, record
from pcshrink.proof.paths import path_of
from pcshrink.proof.survey import Survey
from testing.nets import CASES

pytestmark = pytest.mark.unit


class Reading(nn.Module):
    """Goes one of two ways by what a convolution gives; ``look`` says how it looks at that."""

    def __init__(self, look: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.look = look
        self.stem, self.high, self.low = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)
        nn.init.constant_(self.stem.bias, 3.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.high(x) if self.look(x.mean()) else self.low(x)


WAYS: dict[str, Callable[[Tensor], object]] = {
    "comparison": lambda mean: mean > 1,
    "item": lambda mean: mean.item() > 1,
    "tolist": lambda mean: mean.tolist() > 1,
    "numpy": lambda mean: mean.numpy() > 1,
    "rounding to an index": lambda mean: torch.tensor([0, 0, 1, 1])[mean.long().clamp(0, 3)],
}


@pytest.mark.parametrize("way", WAYS)
def test_code_that_looks_at_values_sees_the_real_ones(way: str) -> None:
    survey = Survey(Reading(WAYS[way]))
    graph = survey.record(torch.zeros(1, 3, 4, 4), lambda _: Graph())
    assert graph.called == {"", "stem", "high"}
    assert not survey.hollow


@pytest.mark.parametrize("name", CASES)
def test_the_path_is_that_of_the_full_pass(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = CASES[name].model(), CASES[name].inputs()
    survey = Survey(model)
    seen = survey.record(inputs, lambda _: Graph())
    full = record(model, inputs)
    assert path_of(survey.ran, seen) == path_of(model, full)
    shapes = [[tuple(t.shape) for t in (op.out,) if isinstance(t, Tensor)] for op in seen.ops if op.func]
    assert shapes == [[tuple(t.shape) for t in (op.out,) if isinstance(t, Tensor)] for op in full.ops if op.func]


def test_what_a_model_keeps_is_not_made_of_zeros() -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.table = nn.Conv2d(3, 4, 1), None
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.ones(4, 2) @ torch.ones(2, 4)
            x = self.conv(x)
            self.seen.copy_(x.mean(dim=(0, 2, 3)))
            return x

    model = Keeping()
    survey = Survey(model)
    survey.record(torch.ones(1, 3, 4, 4), lambda _: Graph())
    assert not survey.hollow  # what is written into a buffer counts as looked at
    assert model.table is None or bool((model.table == 2).all())
    assert model.seen.any()


def test_a_model_that_does_not_run_says_so_itself() -> None:
    with pytest.raises(TraceError, match="does not run on the example input"):
        Survey(nn.Sequential(nn.Conv2d(3, 4, 1))).record(torch.ones(1, 5, 4, 4), lambda _: Graph())


def test_a_copy_that_uses_tensors_of_the_model_does_not_stand_for_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1))

    class Calling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = model
            self.call = lambda x: self.body(x)  # copies share the function, and by it the layers

        def forward(self, x: Tensor) -> Tensor:
            return self.call(x)

    survey = Survey(Calling())
    graph = survey.record(torch.ones(1, 3, 4, 4), lambda _: Graph())
    assert not survey.hollow
    assert graph.called == {"", "body", "body.0", "body.1"}
