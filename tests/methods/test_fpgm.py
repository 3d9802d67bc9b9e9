"""Pruning by the geometric median: distances against plain loops, a choice that holds, a short run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pcshrink.errors import ConfigError
from pcshrink.methods.fpgm import FPGMConfig, distances
from pcshrink.sweep.vary import with_method
from pcshrink.train.recipe.read import load_recipe
from testing.methods import attach_stream, check_short_run


def loop_distances(filters: list[list[float]]) -> list[float]:
    sums = []
    for one in filters:
        total = 0.0
        for other in filters:
            total += math.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
        sums.append(total)
    return sums


def test_scores_are_sums_of_distances_between_all_that_writes_two_channels() -> None:
    model, method, _ = attach_stream(FPGMConfig())
    for group, layers in (("a", (model.a, model.d)), ("b", (model.b,))):
        filters = [
            [weight for layer in layers for weight in layer.weight[c].flatten().tolist()]
            for c in range(len(layers[0].weight))
        ]
        assert method.scores()[group].tolist() == pytest.approx(loop_distances(filters), rel=1e-12)


def test_distances_keep_their_digits_where_filters_are_close() -> None:
    filters = torch.ones(3, 50)
    filters[1, 0] += 1e-4
    assert float(distances(filters)[1]) == pytest.approx(2e-4, rel=1e-2)


def by_loops(filters: list[list[float]], k: int, mix: float) -> set[int]:
    norms = [math.sqrt(sum(w * w for w in row)) for row in filters]
    small = sorted(range(len(filters)), key=lambda c: norms[c])[: round(mix * k)]
    rest = [c for c in range(len(filters)) if c not in small]
    sums = loop_distances([filters[c] for c in rest])
    near = sorted(range(len(rest)), key=lambda i: sums[i])[: k - len(small)]
    return {*small, *(rest[i] for i in near)}


@pytest.mark.parametrize("mix", [0.0, 0.25, 0.5, 1.0])
def test_variants_mix_norm_and_distance(mix: float) -> None:
    model, method, _ = attach_stream(FPGMConfig(mix=mix, ratio=0.6))
    filters = model.b.weight.flatten(1).tolist()
    chosen = method.choose()["b"]
    assert set(chosen.nonzero().flatten().tolist()) == by_loops(filters, 3, mix)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    F.cross_entropy(model.train()(x), torch.arange(7) % 4).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_the_choice_holds_and_no_gradient_reaches_it() -> None:
    model, method, x = attach_stream(FPGMConfig())
    method.start()
    chosen = {name: flags.clone() for name, flags in method.gone().items()}
    assert {name: int(flags.sum()) for name, flags in chosen.items()} == {"a": 3, "b": 2}
    before = model.b.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(3):
        step(model, optimizer, x)
        method.after_step()
    method.after_epoch(1.0)
    assert torch.equal(model.b.weight[chosen["b"]], before[chosen["b"]])
    assert not torch.equal(model.b.weight[~chosen["b"]], before[~chosen["b"]])
    assert all(torch.equal(~keep, chosen[name]) for name, keep in method.keep().items())


def test_without_holding_filters_are_zeroed_after_each_epoch() -> None:
    model, method, _ = attach_stream(FPGMConfig(hold=False))
    method.start()
    assert not any(bool(flags.any()) for flags in method.gone().values())
    method.after_epoch(0.5)
    assert int((model.b.weight.flatten(1).abs().sum(1) == 0).sum()) == 2


def test_another_number_of_channels_is_chosen_anew_where_it_changed() -> None:
    _, method, _ = attach_stream(FPGMConfig())
    method.start()
    before = {name: flags.clone() for name, flags in method.gone().items()}
    method.aim({"a": 2, "b": 3})
    assert int(method.gone()["a"].sum()) == 4
    assert torch.equal(method.gone()["b"], before["b"])


@pytest.mark.parametrize(("setting", "value"), [("mix", 1.5), ("mix", True), ("hold", 1)])
def test_settings_are_checked(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"FPGMConfig\.{setting} must be"):
        FPGMConfig(**{setting: value})  # type: ignore[arg-type]


def test_shifts_have_nothing_to_say_where_the_choice_holds() -> None:
    assert FPGMConfig(hold=False, shifts="keep").shifts == "keep"
    with pytest.raises(ConfigError, match=r'FPGMConfig\.shifts must be "zero" unless hold is false'):
        FPGMConfig(shifts="keep")
    recipe = load_recipe("digits", ["shrink.method=sfp", "shrink.shifts=keep"])
    assert with_method(recipe, "fpgm").shrink is not None  # it does not take what it would refuse


@pytest.mark.train
def test_short_run_that_cuts_as_it_goes(tmp_path: Path) -> None:
    check_short_run(tmp_path, "fpgm", compact_every=1)
