"""Every equation of the method against a version written as plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.methods import select
from pcshrink.methods.pcs import rules as schedule
from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.methods.pcs.gate import SalienceGate
from pcshrink.methods.pcs.generator import SalienceGenerator, hidden_width
from pcshrink.methods.pcs.rules import keep_mask, shrinking_loss
from pcshrink.methods.pcs.units import Units
from pcshrink.methods.pooling import pool
from pcshrink.methods.registry import method_class
from pcshrink.surgery.gate import GateSpec
from pcshrink.sweep.vary import with_method
from pcshrink.train.recipe.read import load_recipe


def make_gate(channels: int, in_features: int = 3) -> SalienceGate:
    spec = GateSpec("layer", False, 1, channels, 1, "layer", 1, in_features, "salience", {"hidden": 8, "norm": True})
    return SalienceGate(spec).double()


def test_generator_follows_the_paper_layer_by_layer() -> None:
    torch.manual_seed(0)
    generator = SalienceGenerator(5, 12, hidden_width(12, 4)).double().eval().requires_grad_(False)
    nn.init.normal_(generator.fc2.weight)
    assert generator.norm is not None
    generator.norm.running_mean.normal_()
    generator.norm.running_var.uniform_(0.5, 2)
    x = torch.randn(3, 5, 4, 6, dtype=torch.float64)
    expected = torch.empty(3, 12, dtype=torch.float64)
    for b in range(3):
        pooled = [sum(float(x[b, c, i, j]) for i in range(4) for j in range(6)) / 24 for c in range(5)]
        hidden = []
        for h in range(8):
            z = sum(float(generator.fc1.weight[h, c]) * pooled[c] for c in range(5))
            z = (z - float(generator.norm.running_mean[h])) / math.sqrt(float(generator.norm.running_var[h]) + 1e-5)
            hidden.append(max(z * float(generator.norm.weight[h]) + float(generator.norm.bias[h]), 0.0))
        for c in range(12):
            z = sum(float(generator.fc2.weight[c, h]) * hidden[h] for h in range(8)) + float(generator.fc2.bias[c])
            expected[b, c] = min(max(z / 6 + 0.5, 0.0), 1.0)
    torch.testing.assert_close(generator(pool(x, 1)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("channels", "hidden"), [(16, 8), (64, 16), (512, 128), (3, 8)])
def test_hidden_width_is_a_quarter_and_at_least_eight(channels: int, hidden: int) -> None:
    assert hidden_width(channels, 4) == hidden


def test_salience_starts_below_saturation_with_a_gradient() -> None:
    torch.manual_seed(0)
    generator = SalienceGenerator(16, 32, 8)
    generator.start_at(ShrinkConfig().init_salience)
    salience = generator(torch.randn(64, 16))
    assert float(salience.detach().min()) > 0.8
    assert float(salience.detach().max()) < 1.0
    salience.sum().backward()
    assert bool((generator.fc2.bias.grad != 0).all())


def test_generator_trains_on_a_single_sample_and_without_norm() -> None:
    for norm in (True, False):
        generator = SalienceGenerator(4, 8, 8, norm=norm).train()
        assert generator(torch.randn(1, 4)).isfinite().all()


@pytest.mark.parametrize("axis", [1, -1])
def test_pool_is_the_mean_over_all_but_batch_and_channels(axis: int) -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    expected = torch.stack([torch.stack([part.mean() for part in sample.unbind(axis - (axis > 0))]) for sample in x])
    torch.testing.assert_close(pool(x, axis), expected)


def test_rate_grows_with_the_square_and_then_stays() -> None:
    for step in range(130):
        expected = 6e-6 * (step / 100) ** 2 if step < 100 else 6e-6
        assert schedule.rate(6e-6, step, 100) == pytest.approx(expected, rel=1e-12)


def test_the_papers_schedule_has_the_papers_rate_and_shorter_ones_a_higher_one() -> None:
    assert schedule.unlearned(schedule.PAPER_STEPS) == schedule.unlearned(10 * schedule.PAPER_STEPS) == 1
    rates = [schedule.unlearned(steps) for steps in (1_000_000, 100_000, 10_000, 1_000, 100, 1)]
    assert rates == sorted(rates)
    assert rates[-1] < 6  # the task must be able to object


@pytest.mark.parametrize("steps", [500, 15_000])
@pytest.mark.parametrize(("lr", "momentum"), [(0.1, 0.9), (0.02, 0.0)])
def test_a_short_schedule_carries_an_entry_as_far_as_the_papers_own(steps: int, lr: float, momentum: float) -> None:
    """Gradient descent with momentum on lambda(t) * hardsigmoid(z), written as a loop without the sigmoid's ends."""
    haste = schedule.haste(steps, schedule.travel(lr, momentum, "sgd"))
    z, velocity = 0.0, 0.0
    for step in range(steps):
        velocity = momentum * velocity + schedule.rate(schedule.PAPER_RATE, step, steps) / 6
        z -= haste * lr * velocity
    whole = sum(
        schedule.rate(schedule.PAPER_RATE, step, schedule.PAPER_STEPS) / 6
        for step in range(0, schedule.PAPER_STEPS, 100)
    )
    assert -z == pytest.approx(100 * whole, rel=0.1)


def test_long_schedules_are_not_hurried_and_very_short_ones_not_beyond_the_fastest_step() -> None:
    reach = schedule.travel(0.1, 0.9, "sgd")
    assert schedule.haste(10 * schedule.PAPER_STEPS, reach) == 1
    assert schedule.haste(1, reach) * schedule.PAPER_RATE / 6 * reach == pytest.approx(schedule.FASTEST)


def test_presets_are_two_thirds_one_and_four_thirds() -> None:
    rates = [ShrinkConfig.paper(preset).multiple for preset in ("A", "B", "C")]
    assert rates == pytest.approx([2 / 3, 1, 4 / 3])


def test_lowest_marks_the_k_lowest() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = torch.tensor(rng.random(9))
        k = int(rng.integers(0, 9))
        expected = torch.zeros(9, dtype=torch.bool)
        for index in sorted(range(9), key=lambda i: float(values[i]))[:k]:
            expected[index] = True
        assert torch.equal(select.lowest(values, k), expected)


def test_lowest_globally_ranks_over_groups_but_leaves_each_its_least() -> None:
    first, second = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.25, 0.9, 0.8])
    chosen = select.lowest_globally([first, second], 4, [1, 1])
    assert [c.tolist() for c in chosen] == [[True, True, False], [True, True, False, False]]


def test_selection_per_group_equals_the_loop() -> None:
    torch.manual_seed(0)
    gates = [make_gate(5), make_gate(7)]
    units = Units(gates, [torch.arange(5), torch.arange(5, 12)], [5, 7])
    salience = torch.rand(4, 12)
    chosen = units.lowest(salience, [2, 3])
    for row in range(4):
        expected = torch.cat([select.lowest(salience[row, :5], 2), select.lowest(salience[row, 5:], 3)])
        assert torch.equal(chosen[row], expected)


@pytest.mark.parametrize(("channels", "ratio", "least", "align", "k"), [
    (16, 0.5, 1, 1, 8), (16, 0.6, 1, 1, 10), (10, 0.99, 2, 1, 8), (64, 0.4, 1, 16, 32), (64, 0.7, 1, 16, 48),
    (6, 0.5, 1, 8, 3),
])  # fmt: skip
def test_k_is_the_ratio_of_the_channels(channels: int, ratio: float, least: int, align: int, k: int) -> None:
    assert select.count(ratio, channels, least, align) == k


def test_shrinking_loss_and_its_gradient() -> None:
    """R is the sum of the selected entries; its gradient is 1 on them (1/B each) and nothing elsewhere."""
    torch.manual_seed(0)
    salience = torch.rand(4, 6, dtype=torch.float64, requires_grad=True)
    selected = torch.tensor([True, False, True, False, False, True])
    loss = shrinking_loss(salience, selected)
    expected = sum(float(salience.detach()[b, c]) for b in range(4) for c in (0, 2, 5)) / 4
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-12)
    (3e-4 * loss).backward()
    for b in range(4):
        for c in range(6):
            assert float(salience.grad[b, c]) == pytest.approx(3e-4 / 4 if selected[c] else 0.0, rel=1e-12)


def test_no_gradient_reaches_an_entry_that_is_zero() -> None:
    generator = SalienceGenerator(3, 4, 8, norm=False)
    nn.init.constant_(generator.fc2.weight, 0.0)
    with torch.no_grad():
        generator.fc2.bias.copy_(torch.tensor([-4.0, -2.0, 0.0, 4.0]))
    salience = generator(torch.randn(5, 3))
    shrinking_loss(salience, torch.tensor([True, True, True, True])).backward()
    assert [bool(g != 0) for g in generator.fc2.bias.grad] == [False, True, True, False]


def _recorded(gates: list[SalienceGate], batch: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    for gate in gates:
        gate.recorded = (torch.rand(batch, gate.spec.channels, dtype=torch.float64, requires_grad=True),)
    return [gate.recorded[0] for gate in gates]


def test_loss_of_a_group_with_two_gates_sums_both_over_the_same_channels() -> None:
    gates = [make_gate(4), make_gate(4)]
    units = Units(gates, [torch.arange(4), torch.tensor([3, 2, 1, 0])], [4])
    first, second = _recorded(gates, 3)
    selected = torch.tensor([True, False, False, True])
    expected = sum(float((first[b, c] + second[b, 3 - c]).detach()) for b in range(3) for c in (0, 3)) / 3
    assert float(units.loss(selected).detach()) == pytest.approx(expected, rel=1e-12)


def test_input_policy_selects_for_each_input_by_its_own_salience() -> None:
    gates = [make_gate(4), make_gate(3)]
    units = Units(gates, [torch.arange(4), torch.arange(4, 7)], [4, 3])
    first, second = _recorded(gates, 5)
    expected = 0.0
    for b in range(5):
        expected += sum(sorted(first[b].tolist())[:2]) + sum(sorted(second[b].tolist())[:1])
    assert float(units.loss([2, 1]).detach()) == pytest.approx(expected / 5, rel=1e-12)


def test_gates_with_different_numbers_of_calls_are_averaged_over_their_own() -> None:
    gates = [make_gate(2), make_gate(2)]
    units = Units(gates, [torch.arange(2), torch.arange(2, 4)], [2, 2])
    once, twice = _recorded(gates, 3)
    gates[1].recorded = (twice, torch.rand(6, 2, dtype=torch.float64, requires_grad=True))
    expected = once.sum(1).mean() + (twice.sum(1).mean() + gates[1].recorded[1].sum(1).mean()) / 2
    got = units.loss(torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(got, expected)


def test_running_salience_is_the_moving_average_of_batch_means() -> None:
    gate = make_gate(3)
    units = Units([gate], [torch.arange(3)], [3])
    running = gate.running.tolist()
    for _ in range(30):
        (salience,) = _recorded([gate], 4)
        units.update_running(0.1)
        for c in range(3):
            running[c] = 0.9 * running[c] + 0.1 * sum(float(salience.detach()[b, c]) for b in range(4)) / 4
    assert gate.running.tolist() == pytest.approx(running, rel=1e-12)


def test_two_micro_batches_count_as_one_in_the_running_salience() -> None:
    gate = make_gate(2)
    units = Units([gate], [torch.arange(2)], [2])
    before = gate.running.clone()
    parts = torch.rand(2, 4, 2, dtype=torch.float64)
    for part in parts:
        gate.start_pass()
        gate.recorded = (part,)
    units.update_running(0.1)
    torch.testing.assert_close(gate.running, 0.9 * before + 0.1 * parts.mean(dim=(0, 1)))


def test_mask_needs_a_threshold_since_the_average_of_zeros_never_is_zero() -> None:
    running = torch.full((4,), 0.9)
    for _ in range(2000):
        running.lerp_(torch.tensor([0.0, 0.0, 1.0, 0.5]), 0.1)
    assert keep_mask(running, 1e-3, min_channels=1, align=1).tolist() == [False, False, True, True]


def test_mask_keeps_the_least_number_and_aligns_upwards() -> None:
    running = torch.tensor([0.0, 0.5, 0.0, 0.9, 0.2, 0.0, 0.0, 0.0])
    assert int(keep_mask(running, 1e-3, min_channels=1, align=4).sum()) == 4
    assert keep_mask(running, 0.6, min_channels=2, align=1).tolist() == [False, True, False, True] + [False] * 4
    assert int(keep_mask(torch.zeros(8), 1e-3, min_channels=1, align=1).sum()) == 1


@pytest.mark.parametrize(
    ("method", "setting", "value"),
    [
        ("lasso", "scope", "global"), ("lasso", "allocation", "uniform"), ("pcs-input", "scope", "global"),
        ("pcs-input", "allocation", "uniform"), ("pcs-input", "price", "madds"),
    ],
)  # fmt: skip
def test_settings_without_effect_are_refused(method: str, setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"\.{setting} must be one of"):
        method_class(method).Config.from_dict({setting: value})
    recipe = load_recipe("digits", [f"shrink.{setting}={value}"])
    assert with_method(recipe, method).shrink is not None  # it does not take over what it would refuse


def test_truncation_zeroes_the_lowest_entries_of_each_input() -> None:
    gate = make_gate(6)
    gate.truncated = 2
    gate.generator.fc2.weight.data.normal_()
    gate.eval()
    pooled = torch.randn(5, 3, dtype=torch.float64)
    raw, cut = gate.generator(pooled).detach(), gate.salience(pooled).detach()
    for b in range(5):
        order = sorted(range(6), key=lambda c: float(raw[b, c]))
        assert all(float(cut[b, c]) == 0 for c in order[:2])
        assert torch.equal(cut[b, order[2:]], raw[b, order[2:]])
