"""Torch-Pruning as a method: importance and pulls against plain loops and the library itself, refusals, a short run."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pcshrink as pcs
from pcshrink.budget.allocate import CostTarget, Limit
from pcshrink.budget.config import BudgetConfig
from pcshrink.budget.cost_model import CostModel
from pcshrink.errors import ConfigError
from pcshrink.methods.torch_pruning import TorchPruningConfig
from testing.methods import Stream, attach_stream, check_short_run

tp = pytest.importorskip("torch_pruning")


# For both groups: the layers that write it, its norms, the layers that read it.
PARTS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "a": (["a", "d"], ["na", "nd"], ["b", "head"]),
    "b": (["b"], ["nb"], ["d"]),
}


def loop_importances(model: Any, group: str = "b") -> list[float]:
    """What all weights of each channel weigh, as a multiple of the mean."""
    writers, norms, readers = ([model.get_submodule(name).weight for name in part] for part in PARTS[group])
    worth = []
    for c in range(len(writers[0])):
        parts = [weight[c] for weight in (*writers, *norms)] + [weight[:, c] for weight in readers]
        worth.append(sum(w**2 for part in parts for w in part.flatten().tolist()) / len(parts))
    return [w / (sum(worth) / len(worth)) for w in worth]


def loop_gammas(model: Any, group: str) -> list[float]:
    """How much harder each channel is pulled than the best one."""
    sizes = [math.sqrt(worth) for worth in loop_importances(model, group)]
    return [16 ** ((max(sizes) - size) / (max(sizes) - min(sizes))) for size in sizes]


@pytest.mark.parametrize("importance", ["group-norm", "magnitude"])
def test_a_channel_is_worth_all_its_weights(importance: Any) -> None:
    model, method, _ = attach_stream(TorchPruningConfig(importance=importance))
    assert method.scores()["b"].tolist() == pytest.approx(loop_importances(model), rel=1e-5)
    with torch.no_grad():
        model.b.weight[2] *= 7  # scores are those of the weights as they are now
    assert method.scores()["b"].tolist() == pytest.approx(loop_importances(model), rel=1e-5)


def test_a_channel_is_worth_the_scales_of_its_norms() -> None:
    model, method, _ = attach_stream(TorchPruningConfig(importance="bn-scale"))
    with torch.no_grad():
        model.na.weight.copy_(torch.arange(1.0, 7.0))
        model.nd.weight.copy_(torch.tensor([-9.0, 1, 1, 1, 1, 1]))
    worth = [(a + abs(d)) / 2 for a, d in zip(range(1, 7), [-9, 1, 1, 1, 1, 1], strict=True)]
    expected = [w / (sum(worth) / 6) for w in worth]
    assert method.scores()["a"].tolist() == pytest.approx(expected, rel=1e-6)


def gradients(model: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_the_regulariser_of_group_norm_pulls_at_every_weight_of_a_channel() -> None:
    model, method, _ = attach_stream(TorchPruningConfig(reg=0.01))
    loss = method.loss()
    assert loss is not None
    pull = gradients(model, loss)
    outer, inner = loop_gammas(model, "a"), loop_gammas(model, "b")
    for c in range(5):
        assert pull["nb.weight"][c].item() == pytest.approx(0.01 * inner[c] * model.nb.weight[c].item(), rel=1e-4)
        for i in range(6):  # as an output of one group, and as an input of the other
            expected = 0.01 * (inner[c] + outer[i]) * model.b.weight[c, i]
            assert torch.allclose(pull["b.weight"][c, i], expected, rtol=1e-4)


def test_the_regulariser_of_bn_scale_pulls_at_scales_alone() -> None:
    model, method, _ = attach_stream(TorchPruningConfig(importance="bn-scale", reg=0.5))
    with torch.no_grad():
        model.nb.weight[1] = -2.0
    loss = method.loss()
    assert loss is not None
    pull = gradients(model, loss)
    assert pull["nb.weight"].tolist() == [0.5, -0.5, 0.5, 0.5, 0.5]
    assert float(pull["b.weight"].abs().sum()) == 0.0


@pytest.mark.parametrize("importance", ["group-norm", "bn-scale"])
def test_a_step_is_the_one_that_the_library_would_take(importance: Any) -> None:
    torch.manual_seed(1)
    plain, x, labels = Stream(), torch.randn(8, 3, 6, 6), torch.arange(8) % 4
    shrunk = copy.deepcopy(plain)
    shrinker = pcs.attach_(shrunk, x, TorchPruningConfig(importance=importance, reg=0.02))
    kinds = {"group-norm": tp.pruner.GroupNormPruner, "bn-scale": tp.pruner.BNScalePruner}
    scores = {"group-norm": tp.importance.GroupMagnitudeImportance, "bn-scale": tp.importance.BNScaleImportance}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruner = kinds[importance](
            plain, x, importance=scores[importance](), reg=0.02, ignored_layers=[plain.head],
            in_channel_groups={}, out_channel_groups={},
        )  # fmt: skip
    for _ in range(3):
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (plain.train(), shrunk.train())]
        F.cross_entropy(plain(x), labels).backward()
        pruner.regularize(plain)
        (F.cross_entropy(shrunk(x), labels) + shrinker.penalty()).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        shrinker.step()
    for mine, theirs in zip(shrunk.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scope", ["local", "global"])
def test_what_goes_is_what_the_library_would_remove(scope: Any) -> None:
    _, method, x = attach_stream(TorchPruningConfig(importance="magnitude", ratio=0.4, scope=scope), seed=4)
    twin = method.twin  # type: ignore[attr-defined]
    method.start()
    removed: dict[str, set[int]] = {}
    names = {module: name for name, module in twin.network.named_modules()}
    pruner = tp.pruner.MagnitudePruner(
        twin.network, x, importance=tp.importance.GroupMagnitudeImportance(), global_pruning=scope == "global",
        pruning_ratio=4 / 11 if scope == "global" else 0.4, ignored_layers=[twin.network.head],
        in_channel_groups={}, out_channel_groups={},
    )  # fmt: skip
    for group in pruner.step(interactive=True):
        for dependency, indices in group:
            if pruner.DG.is_out_channel_pruning_fn(dependency.handler):
                removed[names.get(dependency.target.module, "")] = set(indices)
    ours = {name: set(flags.nonzero().flatten().tolist()) for name, flags in method.selected().items()}
    if scope == "global":
        assert ours == {"a": removed.get("a", set()), "b": removed.get("b", set())}
    else:  # the library rounds down what stays
        assert all(ours[name] <= removed[name] and len(removed[name] - ours[name]) <= 1 for name in ours)


def test_with_a_regulariser_the_choice_is_made_at_the_end() -> None:
    _, method, _ = attach_stream(TorchPruningConfig())
    method.start()
    assert not any(bool(flags.any()) for flags in method.gone().values())
    at_once = attach_stream(TorchPruningConfig(reg=0))[1]
    at_once.start()
    assert {name: int(flags.sum()) for name, flags in at_once.gone().items()} == {"a": 3, "b": 2}
    assert at_once.loss() is None


def test_one_ranking_of_all_channels_meets_a_budget() -> None:
    torch.manual_seed(0)
    model, x = Stream(), torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        model.b.weight[:4] *= 0.01  # nearly all of the inner channels are worth little
        model.d.weight[:, :4] *= 0.01
        model.nb.weight[:4] *= 0.01
    shrinker = pcs.attach_(model, x, TorchPruningConfig(scope="global", min_channels=1))
    limit = Limit.of(BudgetConfig(madds=0.45), shrinker, x)
    target = CostTarget(limit, CostModel.of(shrinker, x), shrinker.config, shrinker.align)
    shrinker.method.set_target(target)
    kept = {g.name: g.channels - g.k for g in shrinker.groups}
    assert kept["b"] / 5 < kept["a"] / 6
    assert target.cost(kept) <= limit.limit


def test_groups_that_cannot_be_scored_stay_whole_and_are_named() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1)
    )
    x = torch.randn(2, 3, 9, 9)
    shrinker = pcs.attach_(net, x, TorchPruningConfig(importance="bn-scale"))
    assert [g.name for g in shrinker.groups] == ["2"]
    assert shrinker.refused["0"] == "it has no BatchNorm that it could be scored by"
    assert shrinker.method.concerns() == ["group 0 stays whole: it has no BatchNorm that it could be scored by"]
    bare = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    with pytest.raises(ConfigError, match=r"torch-pruning \(bn-scale\) can score nothing in this network. 0: it"):
        pcs.attach_(bare, x, TorchPruningConfig(importance="bn-scale"))


def test_a_network_that_the_library_fails_on_is_refused_at_once() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False), nn.ReLU(), nn.Conv2d(8, 4, 1))
    x = torch.randn(2, 3, 9, 9)
    with pytest.raises(
        ConfigError, match=r"Torch-Pruning .* fails to regularise this network \(reg: 0 goes without\): "
    ):
        pcs.attach_(net, x, TorchPruningConfig())
    assert [g.name for g in pcs.attach_(net, x, TorchPruningConfig(reg=0)).groups] == ["0"]


def test_without_the_library_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(ConfigError, match=r"needs torch_pruning, which is not installed.*`pip install torch.pruning`"):
        pcs.attach_(Stream(), torch.randn(2, 3, 6, 6), TorchPruningConfig())


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"reg must be 0 with importance magnitude.*; got 0.1"):
        TorchPruningConfig(importance="magnitude", reg=0.1)
    with pytest.raises(ConfigError, match=r"reg must be a number of at least 0, or none; got -1"):
        TorchPruningConfig(reg=-1)


@pytest.mark.train
def test_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = check_short_run(tmp_path, "torch-pruning", reg=1e-3)
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    pcs.load(result.model_dir)  # needs no other library


@pytest.mark.train
def test_short_run_without_a_regulariser(tmp_path: Path) -> None:
    check_short_run(tmp_path, "torch-pruning", importance="magnitude", scope="global")
