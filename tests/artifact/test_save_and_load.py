"""What is saved comes back bit for bit: gated, masked and folded, by itself or into the user's network."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.artifact import load, load_weights, read, save
from pcshrink.errors import CheckpointError, ConfigError, PlanMismatchError, ShrinkWarning
from pcshrink.models import create
from pcshrink.surgery.gates import find_gates
from testing.checks import outputs, random_keep, stir_gates_
from testing.nets import CASES, Case

pytestmark = pytest.mark.unit

KINDS = ("gated", "folded", "masked")


def shrunk(model: nn.Module, example: Any, kind: str) -> tuple[nn.Module, pcs.PrunePlan]:
    """A model cut at random: compact with gates, compact and folded, or full-size with the mask on."""
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    plan = shrinker.plan(random_keep(shrinker, seed=3))
    if kind == "masked":
        shrinker.mask_(plan)
        return model.eval(), plan
    return pcs.compact(model, plan, example, gates="keep" if kind == "gated" else "fold").eval(), plan


def assert_equal(one: nn.Module, other: nn.Module, example: Any) -> None:
    assert type(one) is type(other)
    mine, theirs = dict(one.named_buffers()), dict(other.named_buffers())
    mine |= dict(one.named_parameters(remove_duplicate=False))
    theirs |= dict(other.named_parameters(remove_duplicate=False))
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert tensor.dtype == theirs[name].dtype
        assert tensor.requires_grad == theirs[name].requires_grad, name
        assert torch.equal(tensor, theirs[name]), name
    assert one.state_dict().keys() == other.state_dict().keys()
    for a, b in zip(outputs(one, example), outputs(other.eval(), example), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_round_trip_of_every_pattern(case: Case, kind: str, tmp_path: Path) -> None:
    example = case.inputs()
    model, plan = shrunk(case.model(), example, kind)
    save(tmp_path, model, plan)
    assert_equal(model, load(tmp_path, model=case.model(seed=7)), example)
    assert read(tmp_path).plan == plan


def test_loads_by_itself_in_a_new_process(tmp_path: Path) -> None:
    sizes = {"pcshrink:resnet20": 32, "timm:test_vit": 160, "torchvision:mobilenet_v3_small": 32}
    for number, (builder, size) in enumerate(sizes.items()):
        torch.manual_seed(0)
        example = torch.randn(2, 3, size, size)
        model, plan = shrunk(create(builder, num_classes=7), example, "gated")
        arguments = {"num_classes": 7, "pretrained": False}  # what only chooses initial weights is left out
        save(tmp_path / str(number), model, plan, builder, builder_args=arguments)
        torch.save((example, outputs(model, example)[0]), tmp_path / f"{number}.pt")
    code = (
        "import sys, torch, pcshrink.artifact as a\n"
        "for number in range(3):\n"
        f"    x, y = torch.load(f'{tmp_path}/{{number}}.pt', weights_only=True)\n"
        "    before = torch.get_rng_state()\n"
        f"    model = a.load(f'{tmp_path}/{{number}}')\n"
        "    assert not model.training and torch.equal(before, torch.get_rng_state())\n"
        "    assert torch.equal(model(x), y), number"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_record_says_what_it_is(tmp_path: Path) -> None:
    model, plan = shrunk(create("resnet20"), torch.randn(2, 3, 32, 32), "folded")
    save(tmp_path, model, plan, "pcshrink:resnet20", input_shape=(3, 32, 32), metrics={"error": 8.2})
    record = json.loads((tmp_path / "pcshrink.json").read_text())
    assert (record["format"], record["schema"], record["metrics"]) == ("pcshrink", 2, {"error": 8.2})
    assert torch.__version__.startswith(record["versions"]["torch"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors", "pcshrink.json"]
    assert read(tmp_path).input_shape == (3, 32, 32)


def test_gate_switches_survive(tmp_path: Path) -> None:
    example = torch.randn(2, 3, 32, 32)
    model, plan = shrunk(create("resnet20"), example, "masked")
    for number, gate in enumerate(find_gates(model).values()):
        gate.blend, gate.truncated = number / 32, number or None
    save(tmp_path, model, plan)
    back = load(tmp_path, model=create("resnet20"))
    assert_equal(model, back, example)
    for name, gate in find_gates(model).items():
        other = find_gates(back)[name]
        assert (gate.masked, gate.blend, gate.truncated) == (other.masked, other.blend, other.truncated)


class Odd(nn.Module):
    """Tied weights, a buffer no state_dict holds, a frozen parameter, three dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("shift", torch.rand(6, dtype=torch.float64), persistent=False)
        self.register_buffer("count", torch.tensor(int(torch.randint(99, ()))))
        self.fixed = nn.Parameter(torch.rand(6), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(self.first(x)) * self.fixed + self.shift.float() + self.count
        return self.last(hidden)


def test_ties_volatile_buffers_frozen_parameters_and_dtypes(tmp_path: Path) -> None:
    example = torch.randn(3, 6)
    model, plan = shrunk(Odd(), example, "folded")
    save(tmp_path, model, plan)
    back = load(tmp_path, model=Odd())
    assert_equal(model, back, example)
    assert back.first.weight is back.last.weight
    assert not back.fixed.requires_grad
    assert "shift" not in back.state_dict()


def test_a_tie_made_later_is_kept_and_one_undone_later_too(tmp_path: Path) -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    loose = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    save(tmp_path / "tied", tied, None)
    save(tmp_path / "loose", loose, None)
    back = load(tmp_path / "tied", model=loose)
    assert back[0].weight is back[1].weight
    assert loose[0].weight is not loose[1].weight
    assert_equal(load(tmp_path / "loose", model=tied), loose, torch.rand(2, 4))


def test_overlapping_views_are_saved_apart_with_a_warning(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    model.register_buffer("part", model.weight.detach()[:2])
    with pytest.warns(ShrinkWarning, match="views of one memory"):
        save(tmp_path, model, None)


def test_bfloat16_and_channels_last(tmp_path: Path) -> None:
    model = nn.Conv2d(8, 8, 3).to(torch.bfloat16, memory_format=torch.channels_last)
    save(tmp_path, model, None)
    back = load(tmp_path, model=nn.Conv2d(8, 8, 3))
    assert back.weight.dtype is torch.bfloat16
    assert torch.equal(back.weight, model.weight)


def test_a_model_behind_wrappers_is_saved_as_itself(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    save(tmp_path, nn.DataParallel(model), None)
    assert torch.equal(load(tmp_path, model=nn.DataParallel(nn.Linear(3, 3))).weight, model.weight)


def test_wrong_pairs_are_refused(tmp_path: Path) -> None:
    example = torch.randn(2, 3, 32, 32)
    model, plan = shrunk(create("resnet20"), example, "folded")
    with pytest.raises(PlanMismatchError, match="another model"):
        save(tmp_path, create("resnet32"), shrunk(create("resnet44"), example, "folded")[1])
    with pytest.raises(ConfigError, match="does not make this model"):
        save(tmp_path, model, plan, "pcshrink:resnet32")
    with pytest.raises(ConfigError, match="does not make this model"):
        save(tmp_path, model, plan, "pcshrink:resnet20", builder_args={"num_classes": 3})
    with pytest.raises(ConfigError, match="builder"):
        save(tmp_path, model, plan, builder_args={"num_classes": 3})
    with pytest.raises(ConfigError, match="metrics"):
        save(tmp_path, model, plan, metrics={"error": float("nan")})
    assert not list(tmp_path.iterdir())
    save(tmp_path, model, plan)
    with pytest.raises(CheckpointError, match="names no builder"):
        load(tmp_path)
    other = create("resnet32")
    before = {k: v.clone() for k, v in other.state_dict().items()}
    with pytest.raises(PlanMismatchError, match="does not fit into this"):
        load(tmp_path, model=other)
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())


def test_loading_costs_little_more_than_building(tmp_path: Path) -> None:
    model = create("torchvision:resnet18")
    save(tmp_path, model, None, "torchvision:resnet18")
    timed = []
    for _ in range(3):
        start = time.perf_counter()
        load(tmp_path)
        middle = time.perf_counter()
        create("torchvision:resnet18").load_state_dict(load_weights(tmp_path / "model.safetensors"))
        timed.append((middle - start) / (time.perf_counter() - middle))
    assert min(timed) < 1.5


def test_a_short_name_of_a_builder_is_saved_in_full(tmp_path: Path) -> None:
    model = create("digitsnet")
    save(tmp_path, model, None, "digitsnet")
    assert read(tmp_path).builder == "pcshrink:digitsnet"
    assert torch.equal(load(tmp_path).state_dict()["conv1.weight"], model.state_dict()["conv1.weight"])
