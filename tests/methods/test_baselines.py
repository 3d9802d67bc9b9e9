"""The control rows: random channels, and the same widths from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.artifact import read
from pcshrink.errors import ConfigError
from pcshrink.methods.baselines import RandomConfig, ScratchConfig
from pcshrink.models import create
from pcshrink.train.callbacks import Callback
from pcshrink.train.loop import Loop
from pcshrink.train.run import train
from testing.made_runs import made_run
from testing.training import CopyAt, model_bytes, tiny, train_with_stops

pytestmark = pytest.mark.usefixtures("one_thread")
EXAMPLE = torch.randn(2, 1, 16, 16)
METHODS = ["random", "scratch"]
EPOCHS = {"dense": 1, "warmup": 1, "shrink": 2, "settle": 1}  # of 11 steps each


def digits(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return create("digitsnet")


def plan_of(config: RandomConfig, model: nn.Module) -> dict[str, list[int]]:
    shrinker = pcs.attach_(model, EXAMPLE, config)
    shrinker.method.start()
    return shrinker.plan().groups


@pytest.mark.parametrize("config", [RandomConfig, ScratchConfig])
def test_the_same_draw_cuts_the_same_channels_whatever_the_weights(config: type[RandomConfig]) -> None:
    first = plan_of(config(ratio=0.25), digits())
    assert plan_of(config(ratio=0.25), digits(seed=5)) == first
    other = plan_of(config(ratio=0.25, draw=1), digits())
    assert other != first
    sizes = {g.name: g.channels for g in pcs.attach_(digits(), EXAMPLE, config()).groups}
    for chosen in (first, other):
        assert {name: len(kept) for name, kept in chosen.items()} == {n: 3 * size // 4 for n, size in sizes.items()}
    assert any(kept != list(range(len(kept))) for kept in first.values())


def test_random_channels_stop_passing_when_the_phase_begins_and_not_before() -> None:
    model = digits().eval()
    whole = model(EXAMPLE)
    shrinker = pcs.attach_(model, EXAMPLE, RandomConfig())
    assert torch.equal(model.eval()(EXAMPLE), whole)
    assert not any(bool(gone.any()) for gone in shrinker.method.gone().values())
    shrinker.method.start()
    small = pcs.compact(model, shrinker.plan(), EXAMPLE).eval()
    assert pcs.verify(model.eval(), small, EXAMPLE) < 1e-5
    assert not torch.allclose(small(EXAMPLE), whole, atol=1e-3)


def test_random_follows_another_aim() -> None:
    model = digits()
    shrinker = pcs.attach_(model, EXAMPLE, RandomConfig())
    shrinker.method.start()
    name = shrinker.groups[0].name
    shrinker.aim({name: 3})
    assert int((~shrinker.method.gone()[name]).sum()) == 3
    assert pcs.verify(model.eval(), pcs.compact(model, shrinker.plan(), EXAMPLE).eval(), EXAMPLE) < 1e-5


@pytest.mark.parametrize("draw", [-1, 0.5, True, "a"])
def test_a_draw_is_a_whole_number(draw: Any) -> None:
    with pytest.raises(ConfigError, match=r"RandomConfig\.draw must be a whole number of at least 0"):
        RandomConfig(draw=draw)


def test_a_layer_that_cannot_start_afresh_is_named() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 4, 3)
            self.offset = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.conv(x).relu()) + self.offset
            return out

    with pytest.raises(ConfigError, match=r"cannot draw fresh weights for '0': Odd has parameters but no reset_param"):
        pcs.attach_(nn.Sequential(Odd()), EXAMPLE, ScratchConfig())


class AtFirstPush(Callback):
    """The network as it is when the shrinking phase begins, and what is remembered of earlier steps."""

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}
        self.memory: dict[str, Any] = {}

    def before_step(self, loop: Loop) -> None:
        if loop.timetable.phase(loop.epoch) == "shrink" and not self.weights:
            state = loop.session.model.state_dict()
            self.weights = {name: t.clone() for name, t in state.items() if name.endswith("weight")}
            self.memory = loop.session.memory()
            if loop.session.average is not None:
                self.average = {n: t.clone() for n, t in loop.session.average.model.named_parameters()}


@pytest.mark.train
def test_scratch_starts_from_nothing(tmp_path: Path) -> None:
    seen = []
    changes = [("one", 0, 0), ("other-seed", 1, 0), ("other-draw", 0, 1)]
    for name, seed, draw in changes:
        watch = AtFirstPush()
        shrink = {"method": "scratch", "ratio": 0.5, "draw": draw}
        epochs = {"dense": 1, "warmup": 1, "shrink": 1}
        recipe = tiny(shrink=shrink, epochs=epochs, seed=seed, train={"ema": 0.99}, distill=None)
        train(recipe, tmp_path / name, quiet=True, callbacks=[watch])
        seen.append(watch)
    first, other_seed, other_draw = (watch.weights for watch in seen)
    assert all(torch.equal(tensor, other_seed[name]) for name, tensor in first.items())
    convolutions = [name for name, tensor in first.items() if tensor.ndim == 4]
    assert convolutions
    assert not any(torch.equal(first[name], other_draw[name]) for name in convolutions)
    for watch in seen:
        assert watch.memory == {}  # no momentum of steps with other weights
        assert all(torch.equal(tensor, watch.average[name]) for name, tensor in watch.weights.items())


@pytest.mark.train
def test_random_goes_on_with_the_weights_it_has(tmp_path: Path) -> None:
    watch = AtFirstPush()
    recipe = tiny(shrink={"method": "random", "ratio": 0.5}, epochs={**EPOCHS, "warmup": 0}, distill=None)
    train(recipe, tmp_path, quiet=True, callbacks=[watch])
    dense = pcs.artifact.load_weights(tmp_path / "dense.safetensors")
    assert all(torch.equal(tensor, dense[name]) for name, tensor in watch.weights.items())


@pytest.mark.train
@pytest.mark.parametrize(("method", "compact_every"), [("random", 0), ("scratch", 1)])
def test_a_stopped_run_ends_with_the_same_bytes(method: str, compact_every: int, tmp_path: Path) -> None:
    shrink = {"method": method, "budget": {"madds": 0.5}, "compact_every": compact_every, "gates": "fold"}
    recipe = tiny(shrink=shrink, epochs=EPOCHS, train={"ema": 0.9})
    whole = train(recipe, tmp_path / "whole", quiet=True, callbacks=[CopyAt(25, tmp_path / "stopped")])
    resumed = train_with_stops(recipe, tmp_path / "stopped", 40)
    assert model_bytes(tmp_path / "stopped") == model_bytes(tmp_path / "whole")
    assert resumed.cut == whole.cut
    assert resumed.widths == whole.widths
    assert whole.cut is not None
    assert whole.cut["leak"] == 0
    assert whole.cut["gated_error"] == whole.cut["masked_error"]  # it was masked from the start


@pytest.mark.train
@pytest.mark.parametrize("method", METHODS)
def test_budgets_are_met(method: str, tmp_path: Path) -> None:
    shrink = {"method": method, "budget": {"madds": 0.4}, "compact_every": 1, "gates": "fold"}
    changes = {"model": {"name": "digitsnet"}, "epochs": {"shrink": 1, "settle": 1}, "distill": None}
    result = train(tiny(shrink=shrink, **changes), tmp_path, quiet=True)
    assert result.budget is not None
    assert result.budget.reached == pytest.approx(result.budget.limit, rel=0.01)


@pytest.mark.train
def test_the_widths_of_another_run(tmp_path: Path) -> None:
    epochs = {"dense": 1, "shrink": 1, "settle": 1}
    first = train(tiny(epochs=epochs), tmp_path / "first", quiet=True)
    assert len({first.widths[name] / size for name, size in sizes_of(first.model_dir).items()}) > 1
    for method in (*METHODS, "truncation"):
        shrink = {"method": method, "like": str(first.folder), "compact_every": 1, "gates": "fold"}
        stops = () if method == "scratch" else (17,)  # it resumes as random does
        result = train_with_stops(tiny(shrink=shrink, epochs=epochs), tmp_path / method, *stops)
        assert result.widths == first.widths
        assert result.compact["madds"] == first.compact["madds"]


def sizes_of(folder: Path) -> dict[str, int]:
    plan = read(folder).plan
    assert plan is not None
    return plan.sizes


@pytest.mark.train
def test_widths_of_something_that_has_none(tmp_path: Path) -> None:
    plain = train(tiny(shrink=None, distill=None, epochs={"dense": 1}), tmp_path / "plain", quiet=True)
    shrink = {"method": "random", "like": str(plain.folder)}
    with pytest.raises(ConfigError, match=r"shrink\.like: .*plain holds a network that was never cut"):
        train(tiny(shrink=shrink, epochs=EPOCHS), tmp_path / "random", quiet=True)
    other = made_run(tmp_path / "other", name="resnet20", shape=(3, 32, 32))
    with pytest.raises(ConfigError, match=r"no group is called 'layer1\.1\.conv1'"):
        train(tiny(shrink={**shrink, "like": str(other)}, epochs=EPOCHS), tmp_path / "again", quiet=True)
