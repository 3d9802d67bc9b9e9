"""A recording holds every operation that ran, under the module it ran in, and leaves the model as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pcshrink.errors import TraceError
from pcshrink.graph.record import record

pytestmark = pytest.mark.unit


class Halves(nn.Module):
    """Goes one of two ways, by its input; one of its layers runs in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
        self.large, self.small, self.extra = nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        y = self.body(x) * scale
        if self.training:
            self.extra(y)
        return self.large(y) if x.mean() > 0 else self.small(y)


def operations(model: nn.Module, example: object) -> list[tuple[str, str]]:
    ops = record(model, example).ops
    return [(op.module, op.func._schema.name.split("::")[1]) for op in ops if op.func is not None]


def test_operations_are_named_and_placed() -> None:
    ran = operations(Halves(), torch.ones(1, 3, 2, 2))
    assert ("body.0", "convolution") in ran
    assert ("", "mul") in ran
    assert any(module == "body.1" and "batch_norm" in name for module, name in ran)


def test_parameters_are_the_objects_of_the_model() -> None:
    model = Halves()
    convolutions = [op for op in record(model, torch.ones(1, 3, 2, 2)).ops if op.func and "convolution" in str(op.func)]
    assert [op.args[1] for op in convolutions] == [model.body[0].weight, model.large.weight]


@pytest.mark.parametrize(("sign", "way"), [(1, "large"), (-1, "small")])
def test_the_way_that_was_taken(sign: int, way: str) -> None:
    called = record(Halves(), sign * torch.ones(1, 3, 2, 2)).called
    assert called == {"", "body", "body.0", "body.1", way}


def test_the_training_pass_is_another_one() -> None:
    graph = record(Halves(), torch.randn(2, 3, 2, 2), training=True)
    assert "extra" in graph.called


def test_arguments_in_a_tuple_or_by_name() -> None:
    model, x = Halves(), torch.ones(1, 3, 2, 2)
    assert operations(model, x) == operations(model, (x,)) == operations(model, {"x": x, "scale": 2.0})


def test_nothing_of_the_model_changes() -> None:
    model = Halves().train()
    model.body.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes, drawn = [m.training for m in model.modules()], torch.get_rng_state()
    record(model, torch.randn(2, 3, 2, 2, generator=torch.Generator().manual_seed(0)))
    assert modes == [m.training for m in model.modules()]
    assert torch.equal(drawn, torch.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_failure_names_the_module_and_leaves_no_hooks() -> None:
    model = Halves()
    with pytest.raises(TraceError, match=r"float32\(1, 5, 2, 2\).*in 'body.0': RuntimeError"):
        record(model, torch.ones(1, 5, 2, 2))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
