"""A shrinker in a training loop: widths reached, state kept, peers left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pcshrink as pcs
from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError, SalienceError
from pcshrink.methods.lasso import LassoConfig
from pcshrink.methods.pcs.by_input import ByInputConfig
from pcshrink.methods.truncation import TruncationConfig
from testing.nets import randomise_


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(y)))


def small_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), Block(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


class MadeUpData:
    """Five patterns under noise."""

    def __init__(self, seed: int = 0) -> None:
        self.patterns = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(7))
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, size: int = 64) -> tuple[Tensor, Tensor]:
        labels = torch.randint(0, 5, (size,), generator=self.generator)
        return self.patterns[labels] + 1.5 * torch.randn(size, 3, 12, 12, generator=self.generator), labels


EXAMPLE = torch.randn(2, 3, 12, 12)
STRONG = 30.0  # pushes whatever the task says, so that tests do not depend on how a strength is calibrated


def train(model: nn.Module, shrinker: pcs.Shrinker, optimizer: Any, data: MadeUpData, steps: int) -> list[Tensor]:
    """The loop of the README; the selected sets, step by step."""
    history = []
    for _ in range(steps):
        model.train()
        x, y = data.batch()
        loss = F.cross_entropy(model(x), y) + shrinker.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()
        history.append(torch.cat(list(shrinker.selected().values())))
    return history


def accuracy(model: nn.Module) -> float:
    model.eval()
    x, y = MadeUpData(seed=99).batch(1000)
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def sgd(shrinker: pcs.Shrinker) -> torch.optim.SGD:
    return torch.optim.SGD(shrinker.param_groups(5e-4), lr=0.05, momentum=0.9)


@pytest.mark.parametrize("scope", ["group", "global"])
def test_a_short_push_reaches_the_asked_widths_with_accuracy_kept(scope: Any) -> None:
    torch.manual_seed(0)
    model = small_net()
    config = pcs.ShrinkConfig(ratio=0.5, total_steps=320, lr=0.05, scope=scope, strength=STRONG)
    shrinker = pcs.attach_(model, EXAMPLE, config)
    history = train(model, shrinker, sgd(shrinker), MadeUpData(), 320)
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
    assert accuracy(small) > 0.97
    assert pcs.profile(small, EXAMPLE[:1]).madds < 0.5 * pcs.profile(small_net(), EXAMPLE[:1]).madds


# A phase of 80 steps: pushed hard, and the average forgets quickly enough for what is dead to be at zero.
HASTY: dict[str, Any] = {"total_steps": 80, "lr": 0.05, "strength": STRONG, "alpha": 0.4}


def shrunk(config: MethodConfig) -> tuple[pcs.Shrinker, pcs.PrunePlan]:
    """After the 80 steps of a short phase, compacted once to see that it can be."""
    torch.manual_seed(0)
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, config)
    shrinker.method.start()
    train(model, shrinker, sgd(shrinker), MadeUpData(), 80)
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


def test_truncation_cuts_its_share_whether_dead_or_not() -> None:
    _, plan = shrunk(TruncationConfig(ratio=0.3))
    assert all(len(kept) == plan.sizes[name] - round(0.3 * plan.sizes[name]) for name, kept in plan.groups.items())


def test_lasso_pushes_everything_and_cuts_what_is_zero() -> None:
    shrinker, plan = shrunk(LassoConfig(**HASTY))
    assert all(bool(chosen.all()) for chosen in shrinker.selected().values())
    running = shrinker.method.scores()
    assert all(float(running[name][kept].min()) > 1e-3 or len(kept) == 2 for name, kept in plan.groups.items())


def test_the_input_dependent_policy_cuts_nothing() -> None:
    shrinker, plan = shrunk(ByInputConfig(total_steps=80, lr=0.05))
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


@pytest.mark.parametrize("config", [pcs.ShrinkConfig(), TruncationConfig()], ids=["pcs", "truncation"])
def test_k_set_by_hand_takes_effect_at_once_and_is_kept(config: MethodConfig) -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, config)
    assert [int(chosen.sum()) for chosen in shrinker.selected().values()] == [8, 8, 16, 16]
    shrinker.groups[1].k = 3
    assert [int(chosen.sum()) for chosen in shrinker.selected().values()] == [8, 3, 16, 16]
    again = pcs.attach_(small_net(), EXAMPLE, config)
    again.load_state_dict(shrinker.state_dict())
    assert [group.k for group in again.groups] == [8, 3, 16, 16]
    shrinker.aim({shrinker.groups[0].name: 10, shrinker.groups[2].name: 40})
    assert [int(chosen.sum()) for chosen in shrinker.selected().values()] == [6, 0, 0, 0]
    assert len(shrinker.plan(cut="selected").groups[shrinker.groups[0].name]) == 10


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


def test_state_of_other_settings_is_refused() -> None:
    first = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=10))
    second = pcs.attach_(small_net(), EXAMPLE, pcs.ShrinkConfig(total_steps=20))
    with pytest.raises(pcs.ShrinkError, match="total_steps"):
        second.load_state_dict(first.state_dict())


def test_param_groups_hold_everything_once_and_spare_vectors_from_decay() -> None:
    model = small_net()
    groups = pcs.attach_(model, EXAMPLE).param_groups(weight_decay=1e-3)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    for group in groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (1e-3 if parameter.ndim > 1 else 0.0)


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


def test_non_reentrant_checkpointing_keeps_the_penalty_and_counts_once() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.net, x, use_reentrant=False)

    torch.manual_seed(0)
    model = Checkpointed()
    plain = copy.deepcopy(model.net)
    shrinkers = [pcs.attach_(m, EXAMPLE, pcs.ShrinkConfig(lam=1.0)) for m in (model, plain)]
    for shrinker in shrinkers:
        shrinker.method.steps = 500
        shrinker.model.train()
    plain.load_state_dict(model.net.state_dict())
    for shrinker in shrinkers:
        (shrinker.model(EXAMPLE).square().mean() + shrinker.penalty()).backward()
        shrinker.step()
    for (name, a), b in zip(model.net.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)
    for a, b in zip(shrinkers[0].groups, shrinkers[1].groups, strict=True):
        torch.testing.assert_close(a.running, b.running)


def test_reentrant_checkpointing_is_refused_since_the_penalty_would_do_nothing() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_net()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.net, x.requires_grad_(), use_reentrant=True)

    model = Checkpointed()
    shrinker = pcs.attach_(model, EXAMPLE.clone())
    model.train()
    model(EXAMPLE.clone())
    with pytest.raises(SalienceError, match="no gradient"):
        shrinker.penalty()


def test_autocast_keeps_salience_in_float32() -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(lam=1.0))
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(EXAMPLE)
    assert {s.dtype for gate in shrinker.method.gates.values() for s in gate.recorded} == {torch.float32}
    (out.float().mean() + shrinker.penalty()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_compiled_model_shrinks_like_the_eager_one() -> None:
    torch.manual_seed(0)
    model = small_net()
    eager = copy.deepcopy(model)
    shrinkers = [pcs.attach_(m, EXAMPLE, pcs.ShrinkConfig(total_steps=10, lr=0.05)) for m in (model, eager)]
    eager.load_state_dict(model.state_dict())
    torch._dynamo.reset()
    runners = [torch.compile(model, backend="aot_eager"), eager]
    for shrinker, runner in zip(shrinkers, runners, strict=True):
        train(runner, shrinker, sgd(shrinker), MadeUpData(), 3)
    for (name, a), b in zip(model.state_dict().items(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=name)


def test_attach_to_an_already_compiled_model() -> None:
    model = torch.compile(small_net(), backend="aot_eager")
    shrinker = pcs.attach_(model, EXAMPLE)
    assert len(shrinker.groups) == 4


def test_training_keeps_little_more_memory_than_without_gates() -> None:
    """Peak of what autograd keeps for the backward pass, counted by storage."""

    def kept_bytes(model: nn.Module, extra: Any) -> int:
        storages: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = model(torch.randn(32, 3, 24, 24)).square().mean() + extra()
        total = sum(storages.values())
        loss.backward()
        return total

    dense, gated = small_net().train(), small_net()
    shrinker = pcs.attach_(gated, EXAMPLE, pcs.ShrinkConfig(lam=1.0))
    gated.train()
    assert kept_bytes(gated, shrinker.penalty) <= 1.2 * kept_bytes(dense, lambda: 0.0)


def test_report_lists_every_layer() -> None:
    model = small_net()
    shrinker = pcs.attach_(model, EXAMPLE)
    report = shrinker.report()
    for name, module in model.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)) and "pcs_gate" not in name:
            assert name in report
    assert "network output" in report


def test_attaching_again_reuses_the_gates() -> None:
    model = small_net()
    first = pcs.attach_(model, EXAMPLE)
    keys = list(model.state_dict())
    second = pcs.attach_(model, EXAMPLE)
    assert list(model.state_dict()) == keys
    assert [g.name for g in first.groups] == [g.name for g in second.groups]
    small = pcs.compact(model, first.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in first.groups}), EXAMPLE)
    third = pcs.attach_(small, EXAMPLE)
    assert [g.channels for g in third.groups] == [g.channels // 2 for g in first.groups]


def test_a_loop_of_ones_own_meets_a_budget_and_settles() -> None:
    """The loop of the README, from end to end."""
    torch.manual_seed(0)
    model, dense = small_net(), pcs.profile(small_net(), EXAMPLE[:1]).madds
    shrinker = pcs.attach_(model, EXAMPLE, pcs.ShrinkConfig(total_steps=200, lr=0.05))
    pcs.set_budget(shrinker, EXAMPLE, madds=0.4, gates="fold")
    optimizer = sgd(shrinker)
    train(model, shrinker, optimizer, MadeUpData(), 200)
    plan = shrinker.plan()
    small = pcs.compact(model, plan, EXAMPLE, gates="fold")
    assert pcs.profile(small, EXAMPLE[:1]).madds == pytest.approx(0.4 * dense, rel=0.02)
    later = pcs.transfer(optimizer, model, small, plan)
    assert later.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    for name, parameter in small.named_parameters():
        assert later.state[parameter]["momentum_buffer"].shape == parameter.shape, name
    data = MadeUpData(seed=5)
    small.train()
    for _ in range(60):
        x, y = data.batch()
        F.cross_entropy(small(x), y).backward()
        later.step()
        later.zero_grad()
    assert accuracy(small) > 0.97


@pytest.mark.parametrize(("budget", "message"), [
    ({"madds": 2e9}, "no less than what the dense network costs"),
    ({"madds": 1e-6}, "cannot be reached"),
    ({"flops": 0.5}, "unknown budget flops"),
    ({}, "give exactly one of madds"),
    ({"latency": 0.5}, 'needs gates="fold"'),
])  # fmt: skip
def test_an_impossible_budget_is_refused_at_once(budget: dict[str, float], message: str) -> None:
    shrinker = pcs.attach_(small_net(), EXAMPLE)
    with pytest.raises(pcs.ShrinkError, match=message):
        pcs.set_budget(shrinker, EXAMPLE, **budget)


def test_settled_gates_can_be_folded_without_changing_an_answer() -> None:
    shrinker = pcs.attach_(randomise_(small_net()), EXAMPLE)
    x = torch.randn(4, *EXAMPLE.shape[1:])
    shrinker.model(x)
    shrinker.model.eval()
    with torch.no_grad():
        free = shrinker.model(x)
        shrinker.settle(1.0)
        constant = shrinker.model(x)
        torch.testing.assert_close(pcs.fold(shrinker.model)(x), constant, rtol=1e-4, atol=1e-5)
        shrinker.settle(0.0)
        assert torch.equal(shrinker.model(x), free)
    assert not torch.allclose(free, constant)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), "half", None])
def test_the_share_of_settling_is_checked(share: Any) -> None:
    with pytest.raises(ConfigError, match=r"from 0 \(free gates\)"):
        pcs.attach_(small_net(), EXAMPLE).settle(share)


def test_gates_that_become_constant_are_compiled_once() -> None:
    """Every step has another share; code that depends on the number would be compiled for each."""
    shrinker = pcs.attach_(small_net(), EXAMPLE)
    compiled = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    fast = torch.compile(shrinker.model, backend=backend)
    counts = []
    for share in (0.0, 0.1, 0.2, 0.3, 0.4, 1.0):
        shrinker.settle(share)
        fast(EXAMPLE).sum().backward()
        shrinker.step(pushing=False)
        counts.append(compiled)
    assert counts[1] == counts[-1]  # free gates once, gates on their way once
