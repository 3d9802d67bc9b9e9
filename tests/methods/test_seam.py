"""A method is one class and one line; nothing else knows it, and it knows nothing of trainer, files or costs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.config import MethodConfig, RunFacts
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method, Step
from pcshrink.methods.registry import BUILT_IN, GATES, method_class, method_names, register
from pcshrink.surgery.gate import Axes, Gate, GateSpec, Role
from pcshrink.surgery.gates import find_gates
from pcshrink.train.again import evaluate_saved
from pcshrink.train.recipe.read import load_recipe
from pcshrink.train.run import train
from testing.training import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

# A method of the smallest kind: settings without a field of their own, gates that are plain masks, one hook.


@dataclass(frozen=True, kw_only=True)
class ByNormConfig(MethodConfig):
    """Cut what has the smallest weights."""

    method: ClassVar[str] = "toy-norm"


@register
class ByNorm(Method[ByNormConfig]):
    """The norm of a channel's weights says what it is worth."""

    Config: ClassVar[type[MethodConfig]] = ByNormConfig

    def scores(self) -> dict[str, Tensor]:
        scores = {}
        for group in self.groups:
            weights = [self.model.get_submodule(writer).weight.detach() for writer in group.writers]
            scores[group.name] = torch.stack([w.flatten(1).norm(dim=1) for w in weights]).sum(dim=0)
        return scores


# A method with a setting and a kind of gate of its own, whose trained tensor is cut, saved and folded with the rest.


class Scaling(Gate, kind="toy-scaling"):
    """A trained factor for each channel."""

    AXES: ClassVar[Axes] = {**Gate.AXES, "scale": {0: "own"}}

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.scale = nn.Parameter(torch.ones(spec.channels))

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        return {**super().shapes(spec), "scale": [spec.channels]}

    @classmethod
    def costs(cls, spec: GateSpec) -> dict[Role, dict[str, float]]:
        return {"own": {"params": 1.0, "madds": 0.0, "mem_access": 0.0}}

    def factor(self, x: Tensor) -> Tensor:
        return self.scale * self.mask if self.masked else self.scale

    def constant(self) -> Tensor:
        return self.factor(self.scale).detach().clone()


@dataclass(frozen=True, kw_only=True)
class SlimmingConfig(MethodConfig):
    """A penalty on the factors; what is smallest leaves."""

    method: ClassVar[str] = "toy-slimming"

    weight: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("weight")


@register
class Slimming(Method[SlimmingConfig]):
    """Trained factors under a penalty."""

    Config: ClassVar[type[MethodConfig]] = SlimmingConfig
    Gate: ClassVar[type[Gate]] = Scaling

    def factors(self, name: str) -> Tensor:
        factors: Tensor = self.gates[name].scale  # type: ignore[assignment]
        return factors

    def loss(self, step: Step | None = None) -> Tensor:
        return self.config.weight * torch.stack([self.factors(name).abs().sum() for name in self.gates]).sum()

    def scores(self) -> dict[str, Tensor]:
        return {
            group.name: torch.stack([self.factors(name).detach().abs() for name in group.gates]).mean(dim=0)
            for group in self.groups
        }


SHORT = {"dense": 1, "warmup": 0, "shrink": 1, "settle": 4}


@pytest.mark.train
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("toy-norm", {"ratio": 0.5, "compact_every": 1}),
        ("toy-norm", {"ratio": 0.5, "compact_every": 0, "gates": "fold"}),
        ("toy-slimming", {"budget": {"madds": 0.5}, "compact_every": 1, "gates": "fold"}),
        ("toy-slimming", {"ratio": 0.5, "compact_every": 0}),
    ],
    ids=["norm-cut", "norm-masked-fold", "slimming-budget-fold", "slimming-masked"],
)
def test_a_method_of_ones_own_goes_through_the_ordinary_trainer(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    recipe = tiny(shrink={"method": method, **settings}, epochs=SHORT, data__batch_size=64)
    result = train(recipe, tmp_path, quiet=True)
    small = pcs.load(tmp_path / "model")
    example = torch.randn(2, 1, 16, 16)
    assert pcs.profile(small, example).madds == result.compact["madds"] < 0.7 * result.dense["madds"]
    if result.budget is None:
        assert set(result.widths.values()) == {4, 8}
    else:
        assert 0.9 * result.budget.limit <= result.budget.reached <= 1.01 * result.budget.limit
    assert result.compact["error"] < 60  # it learned something on the way
    assert evaluate_saved(tmp_path)["error"] == result.compact["error"]
    stay = settings.get("gates") != "fold" and method != "toy-norm"  # plain masks have nothing left to do
    assert bool(find_gates(small)) is stay
    assert result.cut is not None
    assert result.cut["highest"] is None
    if settings["compact_every"]:
        assert result.cut["compact_error"] == result.cut["masked_error"]
    else:
        assert result.cut["compact_error"] == result.cut["final_masked_error"] == result.compact["error"]


@pytest.mark.train
def test_the_tensors_of_a_gate_of_ones_own_are_cut_and_saved(tmp_path: Path) -> None:
    shrink = {"method": "toy-slimming", "ratio": 0.5, "weight": 0.05, "compact_every": 1}
    result = train(tiny(shrink=shrink, epochs=SHORT), tmp_path, quiet=True)
    gates = find_gates(pcs.load(tmp_path / "model"))
    assert {type(gate) for gate in gates.values()} == {Scaling}
    for gate in gates.values():
        assert len(gate.scale) == gate.spec.channels  # type: ignore[arg-type]
        assert not bool((gate.scale == 1).any())  # type: ignore[union-attr]
    assert result.compact["params"] < result.dense["params"]
    code = f"import pcshrink; pcshrink.load({str(tmp_path / 'model')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "CheckpointError" in done.stderr
    assert "no gate is called 'toy-scaling'" in done.stderr
    assert "import the module that defines this gate before loading" in done.stderr


def test_settings_of_ones_own_are_checked_like_all_others() -> None:
    with pytest.raises(ConfigError, match=r"shrink\.wieght: unknown key; did you mean 'weight'\?"):
        tiny(shrink={"method": "toy-slimming", "wieght": 1})
    with pytest.raises(ConfigError, match=r"shrink\.weight: must be a number above 0; got -1"):
        tiny(shrink={"method": "toy-slimming", "weight": -1})
    with pytest.raises(ConfigError, match=r"shrink\.weight: unknown key"):
        tiny(shrink={"method": "toy-norm", "weight": 1})


def test_in_a_loop_of_ones_own() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    x = torch.randn(4, 3, 8, 8)
    shrinker = pcs.attach_(net, x, SlimmingConfig(ratio=0.5, weight=0.5))
    optimizer = torch.optim.SGD(shrinker.param_groups(weight_decay=0.0), lr=0.01)
    for _ in range(3):
        (net(x).square().mean() + shrinker.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()
    assert shrinker.steps == 3
    small = pcs.compact(net, shrinker.plan(), x)
    assert small[0].out_channels == 4  # type: ignore[union-attr]
    assert pcs.verify(small, pcs.compact(net, shrinker.plan(), x, gates="fold"), x) < 1e-5


def test_names_are_taken_once() -> None:
    assert method_class("toy-norm") is ByNorm
    assert {*BUILT_IN, "toy-norm", "toy-slimming"} <= set(method_names())
    register(ByNorm)  # again does no harm

    class Impostor(ByNorm):
        """Has the name of another."""

    with pytest.raises(ConfigError, match="there is a method 'toy-norm' already"):
        register(Impostor)

    class Nameless(Method[MethodConfig]):
        """Has none."""

    with pytest.raises(ConfigError, match=r"MethodConfig\.method is empty"):
        register(Nameless)
    with pytest.raises(ConfigError, match=r"unknown method 'toy-slim', did you mean 'toy-slimming'"):
        method_class("toy-slim")


OWN = """
from dataclasses import dataclass, fields
from typing import ClassVar

from pcshrink.config import MethodConfig, RunFacts
from pcshrink.methods.base import Method


@dataclass(frozen=True, kw_only=True)
class OwnConfig(MethodConfig):
    method: ClassVar[str] = "of-my-own"
    wish: int = 3


class Own(Method[OwnConfig]):
    Config = OwnConfig


def nothing(): ...
"""


def test_a_recipe_names_a_method_as_code_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_methods.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    wanted = ["shrink.method=my_methods:Own", "shrink.wish=5"]
    with pytest.raises(ConfigError, match=r"'my_methods:Own' is code of your own, .* --trust"):
        load_recipe("digits", wanted)
    assert "my_methods" not in sys.modules
    shrink = load_recipe("digits", wanted, trust=True).shrink
    assert shrink is not None
    assert shrink.settings.to_dict()["wish"] == 5
    assert method_class("of-my-own").Config is type(shrink.settings)
    with pytest.raises(ConfigError, match=r"unknown key"):
        load_recipe("digits", ["shrink.method=my_methods:Own", "shrink.wich=5"], trust=True)
    with pytest.raises(ConfigError, match=r"must be a class derived from pcshrink\.methods\.base\.Method"):
        load_recipe("digits", ["shrink.method=my_methods:nothing"], trust=True)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_methods_describe_themselves(name: str) -> None:
    method = method_class(name)
    assert method.Config.method == name
    assert method.summary().endswith(".")
    assert method.reference
    assert method.Config.from_dict(method.Config().to_dict()) == method.Config()


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_gates_of_built_in_methods_are_found_by_their_kind(name: str) -> None:
    gate = method_class(name).Gate
    assert gate is Gate or f"pcshrink.methods.{GATES[gate.kind]}" == gate.__module__


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_settings_follow_the_run_as_far_as_a_method_has_them(name: str) -> None:
    run = RunFacts(total_steps=77, prove=False, optimizer="adamw", lr=0.02, momentum=0.5)
    settings = method_class(name).Config()
    changed = settings.for_run(run)
    assert type(changed) is type(settings)
    by_run = {field.name for field in fields(settings) if not field.metadata.get("recipe", True)}
    assert {"total_steps", "prove"} <= by_run
    for field in fields(settings):
        wanted = run if field.name in by_run else settings
        assert getattr(changed, field.name) == getattr(wanted, field.name)
