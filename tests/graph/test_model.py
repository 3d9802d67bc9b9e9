"""The small helpers around models."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from pcshrink.graph.copies import duplicate
from pcshrink.graph.model import describe, evaluation, named_modules, named_tensors, tensors, unwrap

pytestmark = pytest.mark.unit


@dataclass
class Output:
    """What some libraries return instead of a tuple."""

    scores: Tensor
    name: str = ""


def test_tensors_of_nested_structures() -> None:
    a, b, c, d = torch.zeros(4, 1).unbind()
    assert [t.data_ptr() for t in tensors([a, {"k": (b, 3)}, Output(c), None, d])] == [
        t.data_ptr() for t in (a, b, c, d)
    ]


def test_wrappers_are_looked_through() -> None:
    model = nn.Linear(2, 2)
    assert unwrap(nn.DataParallel(model)) is model
    assert unwrap(torch.compile(nn.DataParallel(model), backend="eager")) is model
    assert unwrap(model) is model


def test_a_copy_shares_nothing_with_the_model_and_keeps_its_ties() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    copied = duplicate(model)
    assert copied[1].weight is copied[0].weight
    assert copied[0].weight is not model[0].weight
    copied[0].register_forward_hook(lambda *_: None)
    copied[0].register_buffer("extra", torch.zeros(1))
    assert not model[0]._forward_hooks
    assert not model[0]._buffers


def test_evaluation_is_quiet_repeatable_and_over_afterwards() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(2, 2)).train()
    drawn = torch.get_rng_state()
    with evaluation(model):
        assert not any(m.training for m in model.modules())
        first = torch.rand(3)
        assert not model(torch.ones(1, 2)).requires_grad
    with evaluation(model, training=True):
        assert all(m.training for m in model.modules())
        assert torch.equal(first, torch.rand(3))
    assert all(m.training for m in model.modules())
    assert torch.equal(drawn, torch.get_rng_state())


def test_inputs_are_described_by_shape_and_type() -> None:
    assert describe(torch.zeros(2, 3)) == "float32(2, 3)"
    assert describe((torch.zeros(1, dtype=torch.int64), {"a": "text"})) == "(int64(1,), {a: str})"


def test_a_copy_keeps_what_shares_memory_and_what_hooks_refer_to() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.count = nn.Linear(2, 2), 0
            self.register_buffer("whole", torch.zeros(4))
            self.register_buffer("same", self.whole.view(2, 2))
            self.register_buffer("front", self.whole[:2])
            self.layer.register_forward_hook(self.note)

        def note(self, *_: object) -> None:
            self.count += 1

    model = Counting()
    copied = duplicate(model)
    copied.whole.fill_(1)
    assert bool(copied.same.all())
    assert bool(copied.front.all())
    assert not model.whole.any()
    copied.layer(torch.ones(1, 2))
    assert (model.count, copied.count) == (0, 1)


def test_modules_and_tensors_have_the_names_that_torch_gives_them() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model.append(model[0])
    model[2].weight = model[0][0].weight
    assert named_modules(model) == list(model.named_modules())
    assert named_modules(model, every_name=True) == list(model.named_modules(remove_duplicate=False))
    for every_name in (False, True):
        options = {"remove_duplicate": not every_name}
        expected = [*model.named_parameters(**options), *model.named_buffers(**options)]
        found = list(named_tensors(model, every_name=every_name).items())
        assert [(name, id(tensor)) for name, tensor in found] == [(name, id(tensor)) for name, tensor in expected]


def test_modules_that_drop_what_they_keep_are_asked_to_before_every_pass() -> None:
    class Keeping(nn.Module):
        kept: Tensor | None = None

        def train(self, mode: bool = True) -> None:  # type: ignore[override]  # as in timm, which returns nothing
            super().train(mode)
            self.kept = None

    model = Keeping().requires_grad_(False)
    for module in model.modules():
        module.training = False
    model.kept = torch.zeros(1)
    with evaluation(model):
        assert model.kept is None
