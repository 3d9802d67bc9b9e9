"""Loops that go wrong: what is left out, too few steps, batches that are not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.errors import SalienceError, ShrinkWarning, VerificationError
from pcshrink.methods.landing import CLOSE_FROM
from testing.small_net import EXAMPLE, MadeUpData, sgd, small_net, train


def short_loop(**left_out: bool) -> None:
    """Some steps with a budget; without what is left out."""
    torch.manual_seed(0)
    model, data = small_net(), MadeUpData()
    early = torch.optim.SGD(model.parameters(), lr=0.05)
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=200, lr=0.05))
    pcs.set_budget(shrinker, EXAMPLE, madds=0.5)
    optimizer = early if "gates" in left_out else sgd(shrinker)
    for _ in range(25):
        x, y = data.batch()
        loss = nn.functional.cross_entropy(model(x), y)
        if "penalty" not in left_out:
            pushed = shrinker.penalty()
            loss = loss if "sum" in left_out else loss + pushed
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ("penalty", r"20 steps were taken with step\(\), but penalty\(\) was never called"),
        ("sum", r"no backward\(\) ever went through what penalty\(\) gave"),
        ("gates", r"the optimizer has not changed a single one of \d+ gates\. Make it after attach_"),
    ],
)
def test_a_loop_that_cannot_push_is_stopped_early_where_a_budget_would_close_channels_by_force(
    left_out: str, said: str
) -> None:
    with pytest.raises(SalienceError, match=said):
        short_loop(**{left_out: True})
    short_loop()


def test_too_few_steps_are_said_before_the_first_one() -> None:
    shrinker = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=30, lr=0.05))
    with pytest.warns(ShrinkWarning, match=r"30 steps, and channels need about 135 .*closed by force"):
        pcs.set_budget(shrinker, EXAMPLE, madds=0.5)


def test_settings_that_a_budget_leaves_nothing_to_do_are_said() -> None:
    shrinker = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=400, strength="C", power=3.0))
    assert shrinker.method.concerns() == []
    with pytest.warns(ShrinkWarning) as said:
        pcs.set_budget(shrinker, EXAMPLE, madds=0.5)
    told = [str(warning.message).partition(";")[0] for warning in said]
    assert told == ["strength C is hardly more than where the rate starts from", "power 3 has no effect"]


@pytest.mark.parametrize("settings", [{"strength": 1.0}, {"strength": "B", "power": 2.0}, {"lam": 0.01, "power": 1.0}])
def test_nothing_is_said_of_settings_that_are_usual_or_do_act(settings: dict[str, Any]) -> None:
    shrinker = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=400, **settings))
    pcs.set_budget(shrinker, EXAMPLE, madds=0.5)


def test_one_bad_batch_leaves_a_network_without_norms_as_good_as_before() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=100, lr=0.05))
    model(EXAMPLE)
    shrinker.step()
    model(torch.full_like(EXAMPLE, float("nan")))
    shrinker.step()
    assert all(bool(buffer.isfinite().all()) for buffer in model.buffers())
    assert bool(pcs.compact(model, shrinker.plan(cut="selected"), EXAMPLE).eval()(EXAMPLE).isfinite().all())


def test_a_network_with_spoiled_statistics_is_neither_cut_nor_saved_nor_exported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE)
    model(EXAMPLE)
    shrinker.step()
    plan = shrinker.plan(cut="selected")
    small = pcs.compact(model, plan, EXAMPLE)
    for network in (model, small):
        norm = next(m for m in network.modules() if isinstance(m, nn.BatchNorm2d))
        norm.running_mean[0] = float("nan")  # as one batch that is not finite leaves them
    said = r"not finite, in .*running_mean.*go back to a state from before"
    with pytest.raises(VerificationError, match=said):
        pcs.compact(model, plan, EXAMPLE)
    with pytest.raises(VerificationError, match=said):
        pcs.save(tmp_path / "saved", small, plan)
    with pytest.raises(VerificationError, match=said):
        pcs.export_onnx(small, EXAMPLE, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_short_schedule_under_adamw_pushes_channels_to_zero_before_they_would_be_closed() -> None:
    torch.manual_seed(0)
    model, data = small_net(), MadeUpData()
    config = pcs.ShrinkConfig(total_steps=160, lr=1e-3, optimizer="adamw", alpha=0.3)
    shrinker = pcs.attach_(model, EXAMPLE, config)
    pcs.set_budget(shrinker, EXAMPLE, madds=0.5)
    optimizer = torch.optim.AdamW(shrinker.param_groups(weight_decay=1e-2), lr=1e-3)
    train(model, shrinker, optimizer, data, round(CLOSE_FROM * config.total_steps) - 1)
    selected, running = shrinker.selected(), {group.name: group.running for group in shrinker.groups}
    left = torch.cat([running[name][chosen] for name, chosen in selected.items()])
    assert len(left) > 10
    assert float(left.mean()) < 0.1  # without help AdamW would have left them near 0.9
    assert min(float(running[name][~chosen].mean()) for name, chosen in selected.items()) > 0.5
