"""Several example inputs, and code that branches on the size or the batch of its input."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import ShrinkWarning, TraceError
from testing.checks import LIMIT, outputs, random_keep, relative, stir_gates_

pytestmark = pytest.mark.equivalence


def image(side: int, batch: int = 2, seed: int = 0) -> Tensor:
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(seed))


class Branching(nn.Module):
    """Large pictures take one layer more, with a width that the code knows."""

    def __init__(self, limit: int = 16, by_batch: bool = False) -> None:
        super().__init__()
        self.limit, self.by_batch = limit, by_batch
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)
        self.extra, self.head = nn.Conv2d(8, 8, 1), nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        far = len(x) == 1 if self.by_batch else x.shape[-1] > self.limit
        x = torch.relu(self.a(x))
        if far:
            x = x.unflatten(1, (2, 4)).sum(1).repeat(1, 2, 1, 1) + self.extra(x)
        return self.head(torch.relu(self.b(x)))


def net(**options: bool) -> nn.Module:
    torch.manual_seed(0)
    return Branching(**options).eval()


def test_other_paths_that_are_not_exact_are_said() -> None:
    with pytest.warns(ShrinkWarning, match=r"inputs like float32\(1, 3, 24, 24\).*another path.*attach_\(model, \["):
        shrinker = pcs.attach_(net(), image(12))
    assert {g.name for g in shrinker.groups} == {"a", "b"}
    assert len(shrinker.coupling.notes) == 1


def test_other_batches_are_tried_where_sizes_are_fixed() -> None:
    model = nn.Sequential(net(by_batch=True), nn.Flatten(), nn.Linear(4 * 12 * 12, 3)).eval()
    with pytest.warns(ShrinkWarning, match=r"inputs like float32\(1, 3, 12, 12\)"):
        pcs.attach_(model, image(12))


def test_all_examples_are_recorded_and_proven() -> None:
    model, examples = net(), [image(12), image(24)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shrinker = pcs.attach_(model, examples)
    assert "a" not in {w for g in shrinker.groups for w in g.writers if g.channels == 8}
    stir_gates_(model)
    plan = shrinker.plan(random_keep(shrinker, seed=1, share=0.5))
    small = pcs.compact(model, plan, examples)
    shrinker.mask_(plan)
    for side in (12, 24, 40):
        other = image(side, batch=1, seed=5)
        assert relative(outputs(model, other), outputs(small, other)) <= LIMIT[torch.float32]
    assert pcs.verify(model, small, examples) <= LIMIT[torch.float32]


def test_a_path_that_agrees_is_not_mentioned() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[-1] > 16:
                x = nn.functional.avg_pool2d(x, 2)
            return self.b(torch.relu(self.a(x)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not pcs.attach_(Padded().eval(), image(12)).coupling.notes


class Twins(nn.Module):
    """Small and large pictures take layers of the same kind and size, by module or by weight."""

    def __init__(self, by_weight: bool) -> None:
        super().__init__()
        self.by_weight = by_weight
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.small, self.large = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, layer = torch.relu(self.stem(x)), self.large if x.shape[-1] > 16 else self.small
        return self.head(nn.functional.conv2d(x, layer.weight) if self.by_weight else layer(x))


@pytest.mark.parametrize("by_weight", [False, True])
def test_the_same_operations_with_other_weights_are_another_path(by_weight: bool) -> None:
    with pytest.warns(ShrinkWarning, match=r"inputs like float32\(1, 3, 24, 24\).*another path"):
        shrinker = pcs.attach_(Twins(by_weight).eval(), image(12))
    assert "not used" in shrinker.refused["large"]
    assert ("without calling it" in shrinker.refused.get("small", "")) == by_weight


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict"])
def test_examples_of_every_form(form: str) -> None:
    made = {"tensor": lambda x: x, "tuple": lambda x: (x,), "dict": lambda x: {"x": x}}[form]
    assert len(pcs.attach_(net(), [made(image(12)), made(image(24))]).groups) >= 1


class Detector(nn.Module):
    """Takes a list of pictures of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)

    def forward(self, images: list[Tensor]) -> list[Tensor]:
        if not isinstance(images, list):
            raise TypeError("a list of pictures is needed")
        return [self.b(torch.relu(self.a(picture[None])))[0] for picture in images]


def test_a_list_that_the_model_takes_is_one_example() -> None:
    pictures = [image(12)[0], image(9)[0]]
    for example in (pictures, (pictures,)):
        model = Detector().eval()
        shrinker = pcs.attach_(model, example)
        plan = shrinker.plan(random_keep(shrinker, seed=1, share=0.5))
        assert pcs.compact(model, plan, example).a.out_channels == 4


def test_an_empty_list_is_an_error() -> None:
    with pytest.raises(TraceError, match="empty"):
        pcs.attach_(net(), [])


def test_an_example_that_does_not_run_is_named() -> None:
    with pytest.raises(TraceError, match=r"float32\(2, 5, 8, 8\)"):
        pcs.attach_(net(), [image(12), torch.zeros(2, 5, 8, 8)])


def test_an_example_without_values_proves_nothing() -> None:
    with pytest.raises(TraceError, match=r"float32\(0, 3, 16, 16\) holds no values; pass at least one sample"):
        pcs.attach_(net(), image(16, batch=0))


def test_a_model_that_returns_no_tensor_is_refused_by_that_reason() -> None:
    model = net()
    model.register_forward_hook(lambda module, given, result: float(result.sum()))
    with pytest.raises(TraceError, match=r"the model returns no tensor on .*, so nothing can be proven"):
        pcs.attach_(model, image(12))
