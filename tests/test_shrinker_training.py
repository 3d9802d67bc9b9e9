"""A shrinker in a training loop: widths reached, accuracy kept, resumed, undisturbed by what loops do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pcshrink as pcs
from pcshrink.config import MethodConfig
from pcshrink.methods.lasso import LassoConfig
from pcshrink.methods.pcs.by_input import ByInputConfig
from pcshrink.methods.truncation import TruncationConfig
from testing.small_net import EXAMPLE, STRONG, MadeUpData, accuracy, sgd, small_net, train


@pytest.mark.parametrize("scope", ["group", "global"])
def test_a_short_push_reaches_the_asked_widths_with_accuracy_kept(scope: Any) -> None:
    torch.manual_seed(0)
    model = small_net()
    config = pcs.ShrinkConfig(ratio=0.5, total_steps=400, lr=0.05, scope=scope, strength=STRONG)
    shrinker = pcs.attach_(model, EXAMPLE, config)
    # Some steps more than the schedule: which channels of a group die first is decided by rounding, and what was chosen
    # last needs them until its average is at zero.
    history = train(model, shrinker, sgd(shrinker), MadeUpData(size=32), 420)
    plan = shrinker.plan()
    kept, total = sum(map(len, plan.groups.values())), sum(plan.sizes.values())
    assert total // 2 <= kept <= 0.55 * total  # never less than asked, and what is left was pushed hard
    if scope == "group":
        assert all(len(plan.groups[name]) >= plan.sizes[name] // 2 for name in plan.groups)
    for name, running in shrinker.method.scores().items():  # what leaves is at zero, and nothing else is
        assert plan.groups[name] == (running > config.threshold).nonzero().flatten().tolist()
    assert all(torch.equal(history[-1], earlier) for earlier in history[-50:]), "the running set is not stable"
    small = pcs.compact(model, plan, EXAMPLE)
    assert accuracy(model) > 0.97
    assert accuracy(small) > 0.95
    assert pcs.profile(small, EXAMPLE[:1]).madds < 0.5 * pcs.profile(small_net(), EXAMPLE[:1]).madds


# A phase of 100 steps: pushed hard, and the average forgets quickly enough for what is dead to be at zero.
HASTY: dict[str, Any] = {"total_steps": 100, "lr": 0.05, "strength": STRONG, "alpha": 0.4}


def shrunk(config: MethodConfig) -> tuple[pcs.Shrinker, pcs.PrunePlan]:
    """After the 100 steps of a short phase, compacted once to see that it can be."""
    torch.manual_seed(0)
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, config)
    shrinker.method.start()
    train(model, shrinker, sgd(shrinker), MadeUpData(size=32), 100)
    plan = shrinker.plan()
    pcs.compact(model, plan, EXAMPLE)
    return shrinker, plan


def test_without_a_norm_in_the_generator() -> None:
    shrinker, plan = shrunk(pcs.ShrinkConfig(**HASTY, generator_norm=False))
    assert not any(name.endswith("generator.norm.weight") for name in shrinker.model.state_dict())
    assert sum(map(len, plan.groups.values())) < sum(plan.sizes.values())


def test_a_ratio_by_name_leaves_the_other_groups_whole() -> None:
    shrinker, plan = shrunk(pcs.ShrinkConfig(**HASTY, ratio={"0": 0.25}))
    assert [g.k for g in shrinker.groups] == [4, 0, 0, 0]
    assert [len(kept) == plan.sizes[name] for name, kept in plan.groups.items()] == [False, True, True, True]


def test_the_stronger_the_push_the_more_channels_leave_and_groups_find_widths_of_their_own() -> None:
    dead = []
    for strength in (0.2, 1.0, 5.0):
        torch.manual_seed(0)
        model = small_net()
        shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=200, lr=0.05, strength=strength))
        train(model, shrinker, sgd(shrinker), MadeUpData(), 200)
        dead.append([group.channels - int((group.running > 1e-3).sum()) for group in shrinker.groups])
        assert accuracy(model) > 0.97
    totals = [sum(counts) for counts in dead]
    assert 0 < totals[0] < totals[1] < totals[2]
    shares = [count / group.channels for count, group in zip(dead[1], shrinker.groups, strict=True)]
    assert max(shares) - min(shares) > 0.2


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_the_biases_of_gates_go_on_in_the_direction_of_the_optimizers_step(make: Any) -> None:
    """Written as a loop over channels, for whatever optimizer; what is not pushed and nearly asleep is not lowered."""
    torch.manual_seed(0)
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=2000, lr=0.05))
    method, optimizer = shrinker.method, make(shrinker.param_groups(0.0), lr=0.05)
    gates = dict(method.salience_gates)
    for gate in gates.values():
        gate.running[::3] = 0.1
    x, y = MadeUpData().batch()
    (F.cross_entropy(model(x), y) + shrinker.penalty()).backward()
    selected, running = shrinker.selected(), {name: gate.running.clone() for name, gate in gates.items()}
    before = {name: gate.generator.fc2.bias.detach().clone() for name, gate in gates.items()}
    optimizer.step()
    stepped = {name: gate.generator.fc2.bias.detach().clone() for name, gate in gates.items()}
    shrinker.step()
    for group in shrinker.groups:
        for name in group.gates:
            for channel in range(group.channels):
                moved = float(stepped[name][channel] - before[name][channel])
                further = min(max((method.haste - 1) * moved, -0.2), 0.2)
                if not selected[group.name][channel] and running[name][channel] <= 0.2:
                    further = max(further, 0.0)
                expected = float(stepped[name][channel]) + further
                assert float(gates[name].generator.fc2.bias[channel].detach()) == pytest.approx(expected, abs=1e-5)


def test_truncation_cuts_its_share_whether_dead_or_not() -> None:
    _, plan = shrunk(TruncationConfig(ratio=0.3))
    assert all(len(kept) == plan.sizes[name] - round(0.3 * plan.sizes[name]) for name, kept in plan.groups.items())


def test_lasso_pushes_everything_and_cuts_what_is_zero() -> None:
    shrinker, plan = shrunk(LassoConfig(**HASTY))
    assert all(bool(chosen.all()) for chosen in shrinker.selected().values())
    running = shrinker.method.scores()
    assert all(float(running[name][kept].min()) > 1e-3 or len(kept) == 2 for name, kept in plan.groups.items())


def test_the_input_dependent_policy_cuts_nothing() -> None:
    shrinker, plan = shrunk(ByInputConfig(total_steps=100, lr=0.05))
    assert not shrinker.method.static
    assert all(len(kept) == plan.sizes[name] for name, kept in plan.groups.items())


def test_a_cut_of_the_selected_channels_does_not_wait_for_them_to_die() -> None:
    torch.manual_seed(0)
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=1000, lr=0.05))
    train(model, shrinker, sgd(shrinker), MadeUpData(), 3)
    plan = shrinker.plan(cut="selected")
    selected = shrinker.selected()
    assert {name: (~chosen).nonzero().flatten().tolist() for name, chosen in selected.items()} == plan.groups
    assert all(len(kept) == plan.sizes[name] // 2 for name, kept in plan.groups.items())
    pcs.compact(model, plan, EXAMPLE)


def test_a_batch_that_is_not_finite_does_not_enter_the_running_salience() -> None:
    torch.manual_seed(0)
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=100, lr=0.05))
    optimizer, data = sgd(shrinker), MadeUpData()
    train(model, shrinker, optimizer, data, 3)
    before = [group.running.clone() for group in shrinker.groups]
    x, _ = data.batch()
    x[0] = float("nan")
    model(x)
    shrinker.step()  # as a loop does that only skips optimizer.step()
    assert all(torch.equal(group.running, old) for group, old in zip(shrinker.groups, before, strict=True))
    train(model, shrinker, optimizer, data, 3)
    assert all(bool(group.running.isfinite().all()) for group in shrinker.groups)
    assert any(not torch.equal(group.running, old) for group, old in zip(shrinker.groups, before, strict=True))
    shrinker.plan(cut="selected")


def test_resume_goes_on_as_if_nothing_had_happened() -> None:
    def start() -> tuple[nn.Module, pcs.Shrinker, torch.optim.SGD]:
        torch.manual_seed(0)
        model = small_net()
        shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=40, lr=0.05))
        return model, shrinker, sgd(shrinker)

    model, shrinker, optimizer = start()
    data = MadeUpData()
    train(model, shrinker, optimizer, data, 10)
    states = (model.state_dict(), shrinker.state_dict(), optimizer.state_dict(), data.generator.get_state())
    saved = copy.deepcopy(states)
    train(model, shrinker, optimizer, data, 10)
    again, resumed, other = start()
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    other.load_state_dict(saved[2])
    data = MadeUpData()
    data.generator.set_state(saved[3])
    train(again, resumed, other, data, 10)
    assert resumed.steps == shrinker.steps == 20
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_gradient_accumulation_and_unrelated_eval_passes() -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=10, lr=0.05))
    optimizer = sgd(shrinker)
    for _ in range(2):
        model.train()
        (F.cross_entropy(model(EXAMPLE), torch.tensor([0, 1])) + shrinker.penalty()).backward()
    model.eval()
    model(EXAMPLE)
    optimizer.step()
    shrinker.step()
    assert shrinker.steps == 1


def test_a_loop_of_ones_own_meets_a_budget_and_settles() -> None:
    """The loop of the README, from end to end."""
    torch.manual_seed(0)
    model, dense = small_net(), pcs.profile(small_net(), EXAMPLE[:1]).madds
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=200, lr=0.05))
    pcs.set_budget(shrinker, EXAMPLE, madds=0.4, gates="fold")
    optimizer = sgd(shrinker)
    train(model, shrinker, optimizer, MadeUpData(size=32), 200)
    plan = shrinker.plan()
    small = pcs.compact(model, plan, EXAMPLE, gates="fold")
    # One channel of this small network costs 2 to 5 % of the limit.
    assert 0.97 * 0.4 * dense < pcs.profile(small, EXAMPLE[:1]).madds <= 0.4 * dense
    later = pcs.transfer(optimizer, model, small, plan)
    assert later.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for name, parameter in small.named_parameters():
        assert later.state[parameter]["momentum_buffer"].shape == parameter.shape, name
    data = MadeUpData(seed=5, size=32)
    small.train()
    for _ in range(60):
        x, y = data.batch()
        F.cross_entropy(small(x), y).backward()
        later.step()
        later.zero_grad()
    assert accuracy(small) > 0.95
