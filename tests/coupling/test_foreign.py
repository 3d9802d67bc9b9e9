"""Models with parts that are not ordinary modules: scripted, traced, exported, compiled, hooked from outside."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import ConfigError, TraceError
from pcshrink.graph.model import evaluation
from testing.checks import LIMIT, outputs, random_keep, relative, stir_gates_

pytestmark = [
    pytest.mark.equivalence,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning"),
]
IMAGE = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, wide_in: int, wide_out: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(wide_in, wide_out, 3), nn.BatchNorm2d(wide_out)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(3, 8), Block(8, 8), Block(8, 6), nn.Conv2d(6, 4, 1)).eval()


def cut_exactly(model: nn.Module, shrinker: pcs.Shrinker) -> None:
    stir_gates_(shrinker.model)
    plan = shrinker.plan(random_keep(shrinker, seed=1, share=0.5))
    small = pcs.compact(model, plan, IMAGE)
    shrinker.mask_(plan)
    assert relative(outputs(shrinker.model, IMAGE), outputs(small, IMAGE)) <= LIMIT[torch.float32]


@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_scripted_part_stays_and_the_rest_shrinks(how: str) -> None:
    model = chain()
    model[1] = torch.jit.script(model[1]) if how == "script" else torch.jit.trace(model[1], torch.randn(2, 8, 10, 10))
    shrinker = pcs.attach_(model, IMAGE)
    assert [g.name for g in shrinker.groups] == ["2.conv"]
    assert "torch.jit" in shrinker.refused["1"]
    assert "torch.jit" in shrinker.refused["0.conv"]
    cut_exactly(model, shrinker)


@pytest.mark.parametrize("how", ["script", "trace", "export"])
def test_a_model_without_layers_of_its_own_is_refused(how: str) -> None:
    made: dict[str, Any] = {
        "script": lambda: torch.jit.script(chain()),
        "trace": lambda: torch.jit.trace(chain(), IMAGE),
        "export": lambda: torch.export.export(chain(), (IMAGE,)).module(),
    }
    with pytest.raises(TraceError, match=r"torch\.(jit|export).*Pass the nn\.Module"):
        pcs.attach_(made[how](), IMAGE)


def test_something_else_than_a_module_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be a torch\.nn\.Module, got function"):
        pcs.attach_(lambda x: x, IMAGE)


class Plain(nn.Module):
    """No norm whose forward pass a gate would replace, so nothing but hooks changes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 3), nn.Conv2d(6, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


@pytest.mark.parametrize("how", ["wrapper", "in place", "part", "function"])
def test_code_compiled_before_sees_the_gates(how: str) -> None:
    torch.manual_seed(0)
    model = Plain().eval()
    if how == "part":
        model.b = torch.compile(model.b, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    compiled: dict[str, Any] = {"wrapper": model, "function": model.forward}
    fast = torch.compile(compiled[how], backend="eager") if how in compiled else model
    with torch.no_grad():
        fast(IMAGE)
    shrinker = pcs.attach_(fast if how == "wrapper" else model, IMAGE)
    assert len(shrinker.groups) == 2
    stir_gates_(model)
    plan = shrinker.plan(random_keep(shrinker, seed=1, share=0.5))
    small = pcs.compact(model, plan, IMAGE)

    def eager() -> Tensor:
        with evaluation(model):
            return model(IMAGE)

    with torch.no_grad():
        assert relative([eager()], [fast(IMAGE)]) <= LIMIT[torch.float32]
        shrinker.mask_(plan)
        assert relative([eager()], [fast(IMAGE)]) <= LIMIT[torch.float32]
        assert relative([fast(IMAGE)], [small(IMAGE)]) <= LIMIT[torch.float32]
        pcs.detach_(model)
        assert relative([eager()], [fast(IMAGE)]) <= LIMIT[torch.float32]


class Skipping(nn.Module):
    """A later layer reads what a hook has kept of an earlier one."""

    def __init__(self, closure: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1), nn.Conv2d(14, 4, 1)
        self.kept: dict[str, Tensor] = {}
        kept = self.kept
        keep = (lambda module, args, out: kept.update(a=out)) if closure else self.keep
        self.a.register_forward_hook(keep)

    def keep(self, module: nn.Module, args: Any, out: Tensor) -> None:
        self.kept["a"] = out

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.b(torch.relu(self.a(x))))
        return self.c(torch.cat([x, torch.relu(self.kept["a"])], dim=1))


def test_a_hook_that_keeps_values_on_its_own_model_is_followed() -> None:
    torch.manual_seed(0)
    model = Skipping(closure=False).eval()
    shrinker = pcs.attach_(model, IMAGE)
    assert {g.name for g in shrinker.groups} == {"b"}
    assert "a" in shrinker.refused
    cut_exactly(model, shrinker)


def test_a_hook_that_copies_share_is_refused_when_attaching() -> None:
    torch.manual_seed(0)
    model = Skipping(closure=True).eval()
    with pytest.raises(TraceError, match=r"copy of the hooked model.*Modules with hooks: a"):
        pcs.attach_(model, IMAGE)
    assert copy.deepcopy(model) is not None


def test_rounding_of_growing_values_is_no_failure() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model, example = timm.create_model("mobileone_s0", num_classes=5).eval(), torch.randn(1, 3, 32, 32)
    shrinker = pcs.attach_(model, example)
    for share in (0.3, 0.6):
        small = pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=1, share=share)), example)
        assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())
