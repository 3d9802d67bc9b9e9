"""Phases and whole runs of a tiny network."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

import pcshrink as pcs
from pcshrink.errors import ConfigError, ShrinkError
from pcshrink.models import create
from pcshrink.surgery.gates import find_gates
from pcshrink.train.again import evaluate_saved
from pcshrink.train.callbacks import Callback
from pcshrink.train.loop import Loop
from pcshrink.train.run import train
from pcshrink.train.session import Session
from pcshrink.train.weights import load_weights_
from testing.training import TINY, tiny

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = {"dense": 1, "shrink": 1, "settle": 1}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.train
@pytest.mark.parametrize(
    "changes",
    [
        {"shrink__compact_every": 0},  # masked until the end
        {"shrink__gates": "keep", "train": {"ema": 0.9, "mixup": 0.2, "label_smoothing": 0.1, "channels_last": True}},
        {
            "optimizer": {"name": "adamw", "lr": 0.003, "clip": 1.0, "accumulate": 2, "schedule": "step"},
            "shrink__allocation": "uniform",
        },
        {
            "shrink": {"ratio": 0.5, "align": 4, "method": "truncation"}, "distill": {"loss": "mse"},
            "epochs": {"dense": 1, "shrink": 2, "settle": 1},
        },
    ],
    ids=["masked", "ema-mixup", "adamw-uniform", "ratio-mse"],
)  # fmt: skip
def test_whole_runs_meet_their_target_and_can_be_loaded(changes: dict[str, Any], tmp_path: Path) -> None:
    recipe = tiny(**changes)
    result = train(recipe, tmp_path, quiet=True)
    assert recipe.shrink is not None
    if result.budget:
        assert 0.97 * result.budget.limit <= result.budget.reached <= 1.01 * result.budget.limit
    else:
        assert set(result.widths.values()) == {4, 8}
    small = pcs.load(tmp_path / "model")
    example = torch.randn(2, 1, 16, 16)
    assert pcs.profile(small, example).madds == result.compact["madds"] < 0.6 * result.dense["madds"]
    assert result.cut is not None
    if recipe.shrink.compact_every:
        assert result.cut["masked_error"] == result.cut["compact_error"]
        assert result.cut["final_masked_error"] is None
    else:
        assert result.cut["final_masked_error"] == result.compact["error"]
    assert [row["phase"] for row in rows(tmp_path)][-1] == "settle"
    known = {"loss", "error", "madds", "dead"} | ({"lambda", "R"} if recipe.shrink.method == "pcs" else set())
    assert known <= rows(tmp_path)[-recipe.epochs.settle - 1].keys()
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored["compact"]["error"] == result.compact["error"]


@pytest.mark.train
def test_a_plain_run(tmp_path: Path) -> None:
    result = train(tiny(shrink=None, distill=None, epochs={"dense": 2}), tmp_path, quiet=True)
    assert result.compact["madds"] == result.dense["madds"]
    assert result.compact["error"] == rows(tmp_path)[-1]["error"]


@pytest.mark.train
def test_a_run_of_an_earlier_version_is_evaluated(tmp_path: Path) -> None:
    """Its recipe says how it shrank in words that are unknown by now."""
    result = train(tiny(shrink=None, distill=None, epochs={"dense": 1}), tmp_path, quiet=True)
    path = tmp_path / "recipe.yaml"
    old = {"shrink": {"method": "truncate", "policy": "running", "raise_rate": 2.0}, "epochs": {"shrink": 1}}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | old))
    assert evaluate_saved(tmp_path)["error"] == result.compact["error"]


class WatchCuts(Callback):
    """The loss on a fixed batch, in training mode, and the parameters, before and after each cut."""

    def __init__(self) -> None:
        self.before: list[tuple[float, int]] = []
        self.after: list[tuple[float, int]] = []

    def before_cut(self, session: Session, keep: dict[str, Tensor]) -> None:
        self.before.append(self.look(session))

    def after_cut(self, session: Session) -> None:
        self.after.append(self.look(session))
        shapes = {name: p.shape for name, p in session.model.named_parameters()}
        assert all(memory["momentum_buffer"].shape == shapes[name] for name, memory in session.memory().items())
        assert session.average is not None
        assert {name: p.shape for name, p in session.average.model.named_parameters()} == shapes

    def look(self, session: Session) -> tuple[float, int]:
        images, labels = next(session.data.train.batches(0))
        model = copy.deepcopy(session.model).train()
        with torch.no_grad():
            loss = F.cross_entropy(model(images), labels)
        return float(loss), sum(p.numel() for p in model.parameters())


@pytest.mark.train
def test_cutting_while_training_changes_nothing_but_the_size(tmp_path: Path) -> None:
    """The loss of a batch stays; momentum and average come along."""
    watch = WatchCuts()
    shrink = {"ratio": 0.5, "strength": 30.0, "compact_every": 1}  # enough for some to be dead long before the end
    changes = {"data__batch_size": 32, "epochs": {"shrink": 5, "settle": 1}, "distill": None}
    train(tiny(shrink=shrink, train={"ema": 0.9}, **changes), tmp_path, quiet=True, callbacks=[watch])
    assert len(watch.before) == len(watch.after) >= 2, "a cut before the last epoch of the phase, and one after it"
    for (before, wide), (after, narrow) in zip(watch.before, watch.after, strict=True):
        assert after == pytest.approx(before, abs=1e-5)
        assert narrow < wide


@pytest.mark.train
def test_weights_of_a_dense_run_start_a_shrinking_one(tmp_path: Path) -> None:
    dense = train(tiny(shrink=None, distill=None, epochs={"dense": 2}), tmp_path / "dense", quiet=True)
    weights = tmp_path / "dense" / "model" / "model.safetensors"
    model = dict(TINY["model"]) | {"weights": str(weights)}
    recipe = tiny(model=model, epochs={"shrink": 1, "settle": 1}, shrink__gates="keep")
    result = train(recipe, tmp_path / "small", quiet=True)
    assert result.dense["error"] == dense.compact["error"]
    again = create("digitsnet", num_classes=10, widths=(8, 8, 16))
    load_weights_(again, tmp_path / "small" / "dense.safetensors")  # what a run keeps is what a run may start from
    assert torch.equal(again.state_dict()["fc.weight"], load_file(weights)["fc.weight"])


@pytest.mark.train
def test_a_cut_network_is_trained_on_and_resumed(tmp_path: Path) -> None:
    plain = train(tiny(shrink=None, distill=None, epochs={"dense": 1}), tmp_path / "dense", quiet=True)
    weights = plain.model_dir / "model.safetensors"
    first = train(tiny(epochs=SHORT), tmp_path / "first", quiet=True)
    start = {"name": "digitsnet", "args": {"widths": [8, 8, 16]}, "start": str(first.model_dir)}
    teacher = {"teacher": "digitsnet", "args": {"widths": [8, 8, 16]}, "weights": str(weights)}
    recipe = tiny(model=start, shrink=None, distill=teacher, epochs={"dense": 2})
    second = train(recipe, tmp_path / "second", quiet=True)
    assert second.widths == first.widths
    assert second.compact["madds"] == first.compact["madds"] < second.dense["madds"] == first.dense["madds"]
    assert "error" not in second.dense
    assert evaluate_saved(second.folder)["error"] == second.compact["error"]
    assert train(recipe, tmp_path / "second", resume=True, quiet=True).compact == second.compact


class WatchTruncation(Callback):
    """How many channels pass in each sample when the cut comes, and after it."""

    def __init__(self) -> None:
        self.passing: list[dict[str, int]] = []
        self.cut_again: list[int | None] = []

    def before_cut(self, session: Session, keep: dict[str, Tensor]) -> None:
        method = session.gated.method
        gates = {g.name: method.gates[g.gates[0]] for g in method.groups}
        self.passing.append({name: g.spec.channels - (g.truncated or 0) for name, g in gates.items()})

    def after_cut(self, session: Session) -> None:
        self.cut_again += [gate.truncated for gate in session.gated.method.gates.values()]


@pytest.mark.train
@pytest.mark.parametrize("asked", [{"budget": {"madds": 0.7}}, {"ratio": 0.25}], ids=["budget", "ratio"])
def test_truncation_cuts_as_much_as_it_is_asked_for_and_only_once(asked: dict[str, Any], tmp_path: Path) -> None:
    watch = WatchTruncation()
    shrink = {**asked, "method": "truncation", "compact_every": 1}
    result = train(
        tiny(shrink=shrink, distill=None, epochs=SHORT | {"shrink": 2}), tmp_path, quiet=True, callbacks=[watch]
    )
    assert watch.passing == [result.widths]
    assert watch.cut_again
    assert set(watch.cut_again) == {None}  # what is left is whole
    assert evaluate_saved(tmp_path)["error"] == result.compact["error"]
    assert result.cut is not None
    assert result.cut["highest"] is None  # nothing is pushed to zero first, so nothing is said about it


@pytest.mark.train
def test_a_network_with_generators_is_not_trained_on(tmp_path: Path) -> None:
    first = train(tiny(shrink__gates="keep", distill=None, epochs=SHORT), tmp_path / "first", quiet=True)
    start = {"name": "digitsnet", "args": {"widths": [8, 8, 16]}, "start": str(first.model_dir)}
    with pytest.raises(ConfigError, match="still has its gates"):
        train(tiny(model=start, shrink=None, distill=None, epochs={"dense": 1}), tmp_path / "second", quiet=True)


class NoStep(Callback):
    """Nothing may be trained."""

    def before_step(self, loop: Loop) -> None:
        pytest.fail("it trained")


def test_an_impossible_budget_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the smallest possible here is"):
        train(tiny(shrink={"budget": {"madds": 0.001}}), tmp_path, quiet=True, callbacks=[NoStep()])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shrink": {"budget": {"params": 1e9}}}, "no less than what the dense network costs"),
        ({"distill": {"teacher": "digitsnet"}}, r"distill\.teacher needs distill\.weights"),
        ({"distill": {"teacher": "digitsnet", "weights": "nowhere.safetensors"}}, "nowhere.safetensors"),
        ({"distill": {"teacher": "dense"}, "epochs": {"shrink": 1}, "shrink": {}}, "dense has learned nothing"),
    ],
)
def test_what_cannot_work_is_refused_before_training(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ShrinkError, match=message):
        train(tiny(**changes), tmp_path, quiet=True, callbacks=[NoStep()])


def test_a_teacher_must_know_the_same_classes(tmp_path: Path) -> None:
    other = create("digitsnet", num_classes=7)
    save_file(other.state_dict(), tmp_path / "seven.safetensors")
    teacher = {"teacher": "digitsnet", "args": {"num_classes": 7}, "weights": str(tmp_path / "seven.safetensors")}
    with pytest.raises(ConfigError, match=r"scores of shape \(7,\), but the data have 10 classes"):
        train(tiny(distill=teacher), tmp_path / "run", quiet=True, callbacks=[NoStep()])


@pytest.mark.train
def test_a_builder_that_takes_no_number_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_digits.py").write_text(
        "from pcshrink.models import create\n\n\n"
        "def build(width=8):\n    return create('digitsnet', widths=(width,) * 3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recipe = tiny(
        model={"name": "own_digits:build", "args": {"width": 4}}, shrink=None, distill=None, epochs={"dense": 1}
    )
    with pytest.raises(ConfigError, match="code of your own, which would be run"):
        train(recipe, tmp_path / "run", quiet=True)
    result = train(recipe, tmp_path / "run", quiet=True, trust=True)
    assert evaluate_saved(tmp_path / "run", trust=True)["error"] == result.compact["error"]


@pytest.mark.train
def test_bfloat16_and_tensorboard(tmp_path: Path) -> None:
    train_changes = {"precision": "bf16"}
    output = {"latency": False, "tensorboard": True}
    changes = {"epochs": {"shrink": 1, "settle": 1}, "shrink__gates": "keep", "distill": None}
    result = train(tiny(train=train_changes, output=output, **changes), tmp_path, quiet=True)
    assert list((tmp_path / "tensorboard").iterdir())
    small = pcs.load(tmp_path / "model")
    assert all(p.dtype == torch.float32 for p in small.parameters())
    again = evaluate_saved(tmp_path)  # in float32, whatever it was trained in
    assert (again["error"], again["loss"]) == (result.compact["error"], result.compact["loss"])
    assert result.compact["madds"] < result.dense["madds"]


class DeadEarly(Callback):
    """Lets three channels of a group die before the end of the phase, and notes how many channels every cut leaves."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.left: list[dict[str, int]] = []

    def before_evaluation(self, loop: Loop) -> None:
        if loop.epoch == 1:
            gate = next(g for g in loop.session.gated.method.gates.values() if g.spec.source == self.group)
            gate.running[:3] = 0

    def before_cut(self, session: Session, keep: dict[str, Tensor]) -> None:
        self.left.append({name: int(mask.sum()) for name, mask in keep.items()})


@pytest.mark.train
def test_every_cut_on_the_way_is_aligned(tmp_path: Path) -> None:
    early = DeadEarly("layer3.0.conv1")
    align = {"layer3.*": 2, "*": 4}
    recipe = tiny(epochs={"dense": 1, "shrink": 3, "settle": 1}, distill=None, shrink__align=align)
    result = train(recipe, tmp_path, quiet=True, callbacks=[early])
    assert early.left[0]["layer3.0.conv1"] == 14  # of 16 three were dead
    for left in (*early.left, result.widths):
        assert all(width % (2 if "layer3" in name else 4) == 0 for name, width in left.items())


class Gated(Callback):
    """Notes for each epoch whether gates are left when it is over."""

    def __init__(self) -> None:
        self.left: list[bool] = []

    def after_epoch(self, loop: Loop, row: Mapping[str, object]) -> None:
        self.left.append(bool(find_gates(loop.session.model)))


@pytest.mark.train
@pytest.mark.parametrize(("fold_over", "left"), [(0.0, [1, 0, 0, 0]), (0.5, [1, 1, 1, 0]), (1.0, [1, 1, 1, 1])])
def test_gates_are_folded_when_they_are_constant(fold_over: float, left: list[int], tmp_path: Path) -> None:
    gated = Gated()
    epochs = {"dense": 1, "shrink": 2, "settle": 3}
    recipe = tiny(epochs=epochs, shrink__fold_over=fold_over, distill=None, output={"latency": False, "eval_every": 3})
    result = train(recipe, tmp_path, quiet=True, callbacks=[gated])
    # Dense, shrink, then as given: the epoch of the cut, after which they may be folded at once, and three of settling.
    assert gated.left == [False, True, *map(bool, left)]
    assert not find_gates(pcs.load(result.model_dir))


def test_folding_of_gates_that_stay_is_refused() -> None:
    with pytest.raises(ConfigError, match="fold_over has no effect on gates: keep"):
        tiny(shrink__gates="keep", shrink__fold_over=0.1)
