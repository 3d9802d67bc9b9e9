"""Masked and compact models agree, on one tiny net for each graph pattern and on real architectures."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.graph.model import tensors
from pcshrink.surgery.gates import find_gates
from testing.checks import LIMIT, outputs, random_keep, relative, same_top, stir_gates_, train_once
from testing.nets import CASES, Case, settle_norms_

pytestmark = [pytest.mark.equivalence, pytest.mark.usefixtures("one_thread")]

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def gated(case: Case, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Any, pcs.Shrinker]:
    model, example = case.model(dtype), case.inputs(dtype)
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    return model, example, shrinker


def snapshot(model: nn.Module) -> dict[str, Any]:
    """All that attaching and cutting must leave alone."""
    return {
        "state": {k: v.clone() for k, v in model.state_dict().items() if "pcs_gate" not in k},
        "grad": {n: p.requires_grad for n, p in model.named_parameters() if "pcs_gate" not in n},
        "modes": {n: m.training for n, m in model.named_modules() if "pcs_gate" not in n},
        "rng": torch.get_rng_state(),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before["grad"] == after["grad"]
    assert before["modes"] == after["modes"]
    assert torch.equal(before["rng"], after["rng"])
    assert before["state"].keys() == after["state"].keys()
    for name, tensor in before["state"].items():
        assert torch.equal(tensor, after["state"][name]), name


@each_case
def test_groups_and_refusals(case: Case) -> None:
    _, _, shrinker = gated(case)
    assert {frozenset(g.writers) for g in shrinker.groups} == case.groups
    for name, piece in case.refused.items():
        assert piece in shrinker.refused[name]
    layers = {n for n, m in case.model().named_modules() if isinstance(m, (nn.Linear, nn.modules.conv._ConvNd))}
    assert layers <= {w for g in shrinker.groups for w in g.writers} | set(shrinker.refused)


@each_case
@each_dtype
def test_masked_equals_compact(case: Case, dtype: torch.dtype) -> None:
    model, example, shrinker = gated(case, dtype)
    whole = sum(p.numel() for p in model.parameters())
    other = case.inputs(dtype, seed=7)
    for seed, share in enumerate((0.0, 0.25, 0.5, 0.75, None)):  # 0 leaves one channel in every group
        plan = shrinker.plan(random_keep(shrinker, seed, share))
        small = pcs.compact(model, plan, example)
        assert sum(p.numel() for p in small.parameters()) < whole
        shrinker.mask_(plan)
        expected, got = outputs(model, other), outputs(small, other)
        shrinker.unmask_()
        assert relative(expected, got) <= LIMIT[dtype]
        assert same_top(expected, got, LIMIT[dtype])
        assert any(float(t.std()) > 1e-4 for t in expected), "a constant output proves nothing"


@each_case
@each_dtype
def test_folded_equals_constant_gates(case: Case, dtype: torch.dtype) -> None:
    model, example, shrinker = gated(case, dtype)
    plan = shrinker.plan(random_keep(shrinker, seed=5))
    small = pcs.compact(model, plan, example, gates="fold")
    assert not [key for key in small.state_dict() if "pcs_gate" in key]
    shrinker.mask_(plan)
    for gate in find_gates(model).values():
        gate.blend = 1.0
    other = case.inputs(dtype, seed=7)
    assert relative(outputs(model, other), outputs(small, other)) <= LIMIT[dtype]


def test_a_mask_leaves_with_what_it_closed() -> None:
    case = next(iter(CASES.values()))
    model, example, shrinker = gated(case)
    plan = shrinker.plan(random_keep(shrinker, seed=5))
    shrinker.mask_(plan)
    assert all(gate.masked for gate in find_gates(model).values())
    assert not any(gate.masked for gate in find_gates(pcs.compact(model, plan, example)).values())


@each_case
def test_detach_gives_the_original_back(case: Case) -> None:
    model, example = case.model(), case.inputs()
    before, expected = snapshot(model), outputs(model, example)
    shrinker = pcs.attach_(model, example)
    assert any("pcs_gate" in key for key in model.state_dict())
    shrinker.mask_(shrinker.plan(random_keep(shrinker, seed=1)))
    assert pcs.detach_(model) is model
    assert_same(before, snapshot(model))
    assert list(case.model().state_dict()) == list(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(expected, outputs(model, example), strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@each_case
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_nothing_else_changes(case: Case, training: bool) -> None:
    model, example = case.model().train(training), case.inputs()
    before = snapshot(model)
    shrinker = pcs.attach_(model, example)
    assert_same(before, snapshot(model))
    gates = {k: v.clone() for k, v in model.state_dict().items() if "pcs_gate" in k}
    small = pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=1)), example)
    assert_same(before, snapshot(model))
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in gates.items())
    assert not any(gate.masked or gate.blend for gate in find_gates(model).values())
    after = snapshot(small)
    assert (before["grad"], before["modes"]) == (after["grad"], after["modes"])
    assert not {p.data_ptr() for p in model.parameters()} & {p.data_ptr() for p in small.parameters()}


@each_case
def test_deepcopy_after_a_training_pass(case: Case) -> None:
    model, example, shrinker = gated(case)
    plan = shrinker.plan(random_keep(shrinker, seed=2))
    model.train()
    (sum(t.float().sum() for t in outputs_with_gradient(model, example)) + shrinker.penalty()).backward()
    twin = copy.deepcopy(model).eval()
    model.eval()
    assert relative(outputs(model, example), outputs(twin, example)) == 0
    small = pcs.compact(twin, plan, example)
    shrinker.mask_(plan)
    assert relative(outputs(model, example), outputs(small, example)) <= LIMIT[torch.float32]


def outputs_with_gradient(model: nn.Module, example: Any) -> list[Tensor]:
    return [t for t in tensors(pcs.graph.model.run(model, example)) if t.requires_grad]


@each_case
def test_plan_is_data(case: Case) -> None:
    """A plan survives JSON, and cuts a fresh model without gates in the same places."""
    model, example, shrinker = gated(case)
    plan = shrinker.plan(random_keep(shrinker, seed=3))
    again = pcs.PrunePlan.from_json(plan.to_json())
    assert again == plan
    small = pcs.detach_(pcs.compact(model, plan, example))
    fresh = pcs.compact(case.model(), again, example)
    assert list(fresh.state_dict()) == list(small.state_dict())
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, small.state_dict()[name]), name
    assert relative(outputs(small, example), outputs(fresh, example)) == 0


@each_case
@pytest.mark.parametrize("gates", ["keep", "fold"])
def test_compact_model_trains(case: Case, gates: Any) -> None:
    model, example, shrinker = gated(case)
    small = pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=4)), example, gates=gates)
    optimizer = torch.optim.SGD([p for p in small.parameters() if p.requires_grad], lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        train_once(small, example)
        optimizer.step()
    assert all(bool(t.isfinite().all()) for t in outputs(small.eval(), example))


@each_case
def test_compact_model_can_be_attached_again(case: Case) -> None:
    """Shrinking in steps: a compact model is a model like any other, with or without its gates."""
    model, example, shrinker = gated(case, torch.float64)
    keep = {g.name: torch.arange(g.channels) != 0 for g in shrinker.groups if g.channels > 1}
    small = pcs.compact(model, shrinker.plan(keep), example)
    second = pcs.attach_(small, example)
    smaller = pcs.compact(small, second.plan(random_keep(second, seed=6)), example)
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in small.parameters())


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torchvision = pytest.importorskip("torchvision")
        return torchvision.models.get_model(name, weights=None, **options)

    return build


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        timm = pytest.importorskip("timm")
        return timm.create_model(name, pretrained=False, **options)

    return build


REAL: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (_torchvision("resnet18"), 64),
    "mnasnet0_5": (_torchvision("mnasnet0_5"), 64),
    "mobilenet_v2": (_torchvision("mobilenet_v2"), 64),
    "mobilenet_v3_small": (_torchvision("mobilenet_v3_small"), 64),
    "shufflenet_v2_x0_5": (_torchvision("shufflenet_v2_x0_5"), 64),
    "densenet121": (_torchvision("densenet121"), 64),
    "efficientnet_b0": (_torchvision("efficientnet_b0"), 64),
    "regnet_y_400mf": (_torchvision("regnet_y_400mf"), 64),
    "squeezenet1_1": (_torchvision("squeezenet1_1"), 64),
    "googlenet": (_torchvision("googlenet", init_weights=False, aux_logits=False), 64),
    "lraspp_mobilenet_v3_large": (_torchvision("lraspp_mobilenet_v3_large", weights_backbone=None), 64),
    "res2net50_14w_8s": (_timm("res2net50_14w_8s"), 64),
    "ghostnet_050": (_timm("ghostnet_050"), 64),
    "convnext_atto": (_timm("convnext_atto"), 64),
    "vit_tiny_patch16_224": (_timm("vit_tiny_patch16_224", img_size=64), 64),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_architecture(name: str) -> None:
    """Cut in float64, where nothing hides in the rounding; the outcome is compared in float32 as well."""
    build, size = REAL[name]
    torch.manual_seed(0)
    model = settle_norms_(build(), torch.randn(4, 3, size, size)).double()
    example, other = (
        torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(s)).double() for s in (1, 2)
    )
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    whole = outputs(model, other)
    plan = shrinker.plan(random_keep(shrinker, seed=9))
    pcs.compact(model, plan, example, gates="fold")  # proves itself
    small = pcs.compact(model, plan, example)
    shrinker.mask_(plan)
    assert relative(whole, outputs(model, other)) > 1e-3, "a cut that does not show proves nothing"
    for dtype in (torch.float64, torch.float32):
        expected, got = (outputs(net.to(dtype), other.to(dtype)) for net in (model, small))
        assert relative(expected, got) <= LIMIT[dtype]
        assert same_top(expected, got, LIMIT[dtype])


def test_channels_last() -> None:
    case = CASES["Residual"]
    model = case.model().to(memory_format=torch.channels_last)
    example = case.inputs().contiguous(memory_format=torch.channels_last)
    shrinker = pcs.attach_(model, example)
    small = pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=1)), example)
    assert small(example).shape == model(example).shape
    weights = [p for p in small.parameters() if p.ndim == 4 and min(p.shape[1:]) > 1]
    assert weights
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)


@pytest.mark.parametrize("name", ["Residual", "ExciteLinear", "Transformer"])
def test_autocast(name: str) -> None:
    """Under bfloat16 autocast saliences stay in float32, training works, and the cut is proven in float32."""
    case = CASES[name]
    model, example, shrinker = gated(case)
    model.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(example)
        loss = out.float().square().mean() + shrinker.penalty()
        plan = shrinker.plan(random_keep(shrinker, seed=1))
        small = pcs.compact(model, plan, example)
    assert all(s.dtype == torch.float32 for gate in find_gates(model).values() for s in gate.recorded)
    loss.backward()
    shrinker.step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        train_once(small, example)


@pytest.mark.parametrize("first", ["attach", "compile"])
def test_compiled(first: str) -> None:
    """A gated model compiles, and a compiled model takes gates."""
    case = CASES["Residual"]
    model, example = case.model(), case.inputs()
    if first == "compile":
        fast = torch.compile(model, backend="eager")
        shrinker = pcs.attach_(fast, example)
    else:
        shrinker = pcs.attach_(model, example)
        fast = torch.compile(model, backend="eager")
    stir_gates_(model)
    plan = shrinker.plan(random_keep(shrinker, seed=1))
    assert relative(outputs(model, example), outputs(fast, example)) <= 1e-6
    small = pcs.compact(fast, plan, example)
    shrinker.mask_(plan)
    assert relative(outputs(fast, example), outputs(small, example)) <= LIMIT[torch.float32]
    assert relative(outputs(small, example), outputs(torch.compile(small, backend="eager"), example)) <= 1e-6
