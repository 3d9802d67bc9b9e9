"""Every mistake gets its own clear error: what, where, what was given, what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import (
    CheckpointError,
    ConfigError,
    EmptyPlanError,
    NoSitesError,
    PlanMismatchError,
    SalienceError,
    TraceError,
    VerificationError,
)
from pcshrink.surgery.cut import apply_plan

EXAMPLE = torch.randn(2, 3, 8, 8)


def net(width: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(width * 16, 4),
    )  # fmt: skip


class Sorting(nn.Module):
    """Sorts its channels, an operation without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.last = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).sort(dim=1).values)


def test_nothing_shrinkable() -> None:
    with pytest.raises(NoSitesError, match=r"nothing in this model can shrink.*'?0'?: network output"):
        pcs.attach_(nn.Sequential(nn.Conv2d(3, 8, 3)), EXAMPLE)


def test_no_layers_at_all() -> None:
    with pytest.raises(NoSitesError, match="no convolution or linear layer"):
        pcs.attach_(nn.Sequential(nn.ReLU()), EXAMPLE)


@pytest.mark.parametrize("settings", [{"include": ["nope.*"]}, {"exclude": ["nope.*"]}, {"ratio": {"nope.*": 0.5}}])
def test_a_pattern_that_matches_nothing(settings: dict[str, Any]) -> None:
    with pytest.raises(NoSitesError, match=r"'nope\.\*' matches no convolution or linear layer; they are called 0, 3"):
        pcs.attach_(net(), EXAMPLE, pcs.ShrinkConfig(**settings))


def test_an_operation_without_a_rule_is_named_with_its_module() -> None:
    with pytest.raises(NoSitesError, match=r"aten::sort.*has no rule"):
        pcs.attach_(Sorting(), EXAMPLE)


def test_a_layer_before_an_operation_without_a_rule_stays_while_others_shrink() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 3, 1), Sorting())
    shrinker = pcs.attach_(model, EXAMPLE)
    assert [g.name for g in shrinker.groups] == ["0", "2"]
    assert "aten::sort in '3' has no rule" in shrinker.refused["3.first"]


@pytest.mark.parametrize("example", [torch.randn(2, 5, 8, 8), torch.randn(3), "image", (EXAMPLE, EXAMPLE), None])
def test_wrong_example_input(example: Any) -> None:
    with pytest.raises(TraceError, match=r"does not run on the example input.*Pass an input"):
        pcs.attach_(net(), example)


@pytest.mark.parametrize("ratio", [0, 1, -0.5, 1.5, "half", None, True, {"0": 2}, {}])
def test_ratio_outside_its_range(ratio: Any) -> None:
    with pytest.raises(ConfigError, match=r"ShrinkConfig\.ratio"):
        pcs.ShrinkConfig(ratio=ratio)


@pytest.mark.parametrize(("name", "value"), [
    ("total_steps", 0), ("total_steps", 1.5), ("alpha", 1), ("alpha", 0), ("scope", "layer"),
    ("allocation", "global"), ("price", "gold"), ("optimizer", "lion"), ("power", 0),
    ("strength", "D"), ("strength", -1), ("lam", 0), ("threshold", 0), ("align", 0), ("lr", 0),
    ("min_channels", 0), ("include", "conv"), ("momentum", 1), ("reduction", "4"), ("init_salience", 1.0),
])  # fmt: skip
def test_every_setting_is_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"ShrinkConfig\.{name} must be .*got {value!r}"):
        pcs.ShrinkConfig(**{name: value})


def test_unknown_settings_name_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'ration'; did you mean 'ratio'"):
        pcs.ShrinkConfig.from_dict({"ration": 0.5})


def test_settings_survive_a_round_trip() -> None:
    config = pcs.ShrinkConfig(ratio={"a.*": 0.3}, exclude=["b"], strength="C", align=8)
    assert pcs.ShrinkConfig.from_dict(config.to_dict()) == config


def test_config_of_another_type() -> None:
    with pytest.raises(ConfigError, match="must be settings of a method such as ShrinkConfig, got dict"):
        pcs.attach_(net(), EXAMPLE, {"ratio": 0.5})  # type: ignore[arg-type]


def test_penalty_without_a_forward_pass() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    with pytest.raises(SalienceError, match="needs a forward pass in training mode first"):
        shrinker.penalty()
    shrinker.model.eval()
    shrinker.model(EXAMPLE)
    with pytest.raises(SalienceError, match=r"model\.train\(\)"):
        shrinker.penalty()


def test_penalty_without_gradient() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    shrinker.model.train()
    with torch.no_grad():
        shrinker.model(EXAMPLE)
    with pytest.raises(SalienceError, match=r"carries no gradient.*no_grad"):
        shrinker.penalty()


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ({"nope": 4}, "no group is called 'nope'; the groups are 0, 3"),
        ({"0": 0.5}, "group '0' must keep a whole number of at least 1 channel, got 0.5"),
        ({"0": -3}, "group '0' must keep a whole number of at least 1 channel, got -3"),
        ({"3": 0}, "got 0"),
        ({"3": True}, "got True"),
    ],
)
def test_an_impossible_aim(keep: dict[str, Any], message: str) -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    before = [group.k for group in shrinker.groups]
    with pytest.raises(ConfigError, match=message):
        shrinker.aim(keep)
    assert [group.k for group in shrinker.groups] == before


@pytest.mark.parametrize("k", [-1, 8, 2.0, True, "4"])
def test_an_impossible_k(k: Any) -> None:
    group = pcs.attach_(net(), EXAMPLE).groups[0]
    with pytest.raises(ConfigError, match=r"k of group '0' must be a whole number from 0 to 7; got"):
        group.k = k
    assert group.k == 4


@pytest.mark.parametrize("state", [{}, {"steps": 3}, {"method": "pcs", "state": {}}])
def test_a_state_of_something_else(state: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"this is not the state of a shrinker: .*missing"):
        pcs.attach_(net(), EXAMPLE).load_state_dict(state)


def steps(shrinker: pcs.Shrinker, optimizer: torch.optim.Optimizer, number: int, *, step: bool = True) -> None:
    shrinker.model.train()
    for _ in range(number):
        (shrinker.model(EXAMPLE).square().mean() + shrinker.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step:
            shrinker.step()


def test_an_empty_plan_says_what_was_seen() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE, pcs.ShrinkConfig(total_steps=100))
    steps(shrinker, torch.optim.SGD(shrinker.param_groups(0.0), lr=1e-3), 5)
    with pytest.raises(EmptyPlanError) as caught:
        shrinker.plan()
    message = str(caught.value)
    assert "nothing would leave: 5 of 100 steps were taken with step(), lambda reached" in message
    seen = f"highest salience among the 8 channels that are pushed is {shrinker.method.highest_selected:.3f}"
    assert f"{seen} (dead is at most 0.001)" in message
    assert "Train longer, raise strength" in message
    assert 'plan(cut="selected")' in message


def test_an_empty_plan_tells_of_an_optimizer_made_too_early() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    shrinker = pcs.attach_(model, EXAMPLE)
    steps(shrinker, optimizer, 3)
    with pytest.raises(EmptyPlanError, match=r"optimizer never changed the gates of 2 of 2 layers.*after attach_"):
        shrinker.plan()


def test_an_empty_plan_tells_of_a_forgotten_step() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    # lambda is 0 at step 0, but the task moves the gates.
    steps(shrinker, torch.optim.SGD(shrinker.param_groups(0.0), lr=0.1), 3, step=False)
    with pytest.raises(EmptyPlanError, match=r"0 of 1000 steps.*Call shrinker\.step\(\) after every optimizer\.step"):
        shrinker.plan()


def test_saliences_that_are_not_finite_choose_nothing() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    shrinker.method.gates["1"].running[3] = float("nan")  # type: ignore[index, operator]
    for cut in ("dead", "selected"):
        with pytest.raises(SalienceError, match="the running values of 0 are not finite"):
            shrinker.plan(cut=cut)  # type: ignore[arg-type]


def test_a_cut_of_another_kind() -> None:
    with pytest.raises(ConfigError, match='cut must be "dead" or "selected", got \'some\''):
        pcs.attach_(net(), EXAMPLE).plan(cut="some")  # type: ignore[arg-type]


def test_a_plan_of_another_model() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    plan = shrinker.plan({"0": torch.arange(8) < 4})
    with pytest.raises(PlanMismatchError, match=r"belongs to another model.*shape \(16, 3, 3, 3\) here"):
        pcs.compact(net(16), plan, EXAMPLE)
    with pytest.raises(PlanMismatchError, match="which Linear does not have"):
        pcs.compact(nn.Linear(3, 4), plan, EXAMPLE)
    small = pcs.compact(shrinker.model, plan, EXAMPLE)
    with pytest.raises(PlanMismatchError, match="only once"):
        pcs.compact(small, plan, EXAMPLE)


@pytest.mark.parametrize("keep", [{"nope": torch.ones(8)}, {"0": torch.ones(7)}, {"0": torch.zeros(8)}])
def test_an_impossible_keep(keep: dict[str, Tensor]) -> None:
    with pytest.raises(PlanMismatchError, match=r"no group is called 'nope'|must mark at least one of 8 channels"):
        pcs.attach_(net(), EXAMPLE).plan(keep)


@pytest.mark.parametrize("text", [
    "", "[]", "{}", '{"schema": 99}', '{"schema": 1, "groups": {"a": 3}}', '{"schema": 1}',
])  # fmt: skip
def test_a_damaged_plan(text: str) -> None:
    with pytest.raises(PlanMismatchError, match="plan"):
        pcs.PrunePlan.from_json(text)


def test_absurd_index_ranges_are_refused_without_filling_the_memory() -> None:
    plan = pcs.attach_(net(), EXAMPLE).plan({})
    text = plan.to_json().replace('"keep": "0-7"', '"keep": "0-99999999"', 1)
    with pytest.raises(PlanMismatchError, match="absurd"):
        pcs.PrunePlan.from_json(text)


def test_a_failed_proof() -> None:
    torch.manual_seed(0)
    first, second = net(), net()
    assert pcs.verify(first, first, EXAMPLE) == 0.0
    with pytest.raises(VerificationError, match=r"do not agree: largest relative difference .*allowed 1e-05"):
        pcs.verify(first, second, EXAMPLE)
    with pytest.raises(VerificationError, match=r"outputs \[\(2, 4\)\] and \[\(2, 7\)\]"):
        pcs.verify(first, nn.Sequential(nn.Flatten(), nn.Linear(192, 7)), EXAMPLE)


def test_compaction_that_goes_wrong_hands_out_no_model() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    plan = shrinker.plan({"0": torch.arange(8) < 4})
    wrong = dict(plan.tensors)
    wrong["3.weight"] = {1: [4, 5, 6, 7]}
    damaged = pcs.PrunePlan(plan.groups, plan.sizes, wrong, plan.shapes, plan.attributes, plan.gates)
    with pytest.raises(VerificationError, match="masked and compact model do not agree"):
        pcs.compact(shrinker.model, damaged, EXAMPLE)


def test_a_group_that_fails_its_proof_is_left_out_with_the_reason() -> None:
    class FixedSlice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 8, 1), nn.Conv2d(4, 8, 1), nn.Conv2d(8, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.b(self.a(x)[:, :4]))

    shrinker = pcs.attach_(FixedSlice(), EXAMPLE)
    assert [g.name for g in shrinker.groups] == ["b"]
    assert "proof failed" in shrinker.refused["a"]


def test_a_model_that_does_not_repeat_itself() -> None:
    class Counter(nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.layers = net()

        def forward(self, x: Tensor) -> Tensor:
            Counter.calls += 1
            return self.layers(x) * Counter.calls

    with pytest.raises(TraceError, match="does not repeat itself"):
        pcs.attach_(Counter(), EXAMPLE)


def test_gates_must_be_kept_or_folded() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    with pytest.raises(ConfigError, match='"keep" or "fold", got \'drop\''):
        pcs.compact(shrinker.model, shrinker.plan({}), EXAMPLE, gates="drop")  # type: ignore[arg-type]


def test_a_failed_attach_leaves_the_model_as_it_was() -> None:
    model = Sorting()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(NoSitesError):
        pcs.attach_(model, EXAMPLE)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_tensors_with_history_inside_the_model_are_copied_without_it() -> None:
    shrinker = pcs.attach_(net(), EXAMPLE)
    shrinker.model.cache = torch.ones(1, requires_grad=True) * 2  # type: ignore[assignment]
    small = apply_plan(shrinker.model, shrinker.plan({}))
    assert small.cache.grad_fn is None
    assert float(small.cache) == 2.0
