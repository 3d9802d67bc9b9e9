"""The timer is honest and leaves models alone."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.errors import ConfigError
from pcshrink.measure import timing
from pcshrink.measure import widths as staircase
from pcshrink.measure.explain import explain, table_of
from pcshrink.measure.latency import compare, latency
from pcshrink.measure.layers import Layer, LayerTable, layers_of, narrowed
from pcshrink.models import create
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_
from testing.machines import fake_times

pytestmark = pytest.mark.unit


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter rounds, for tests that need many."""
    monkeypatch.setattr(timing, "BLOCK_SECONDS", 0.0005)
    monkeypatch.setattr(timing, "WARM_SECONDS", 0.001)


def work(size: int) -> Any:
    def call() -> int:
        return sum(range(size))

    return call


@pytest.mark.usefixtures("brief")
def test_the_same_thing_200_times_is_rarely_called_faster() -> None:
    verdicts: Counter[str] = Counter()
    for _ in range(200):
        times = timing.interleave({"a": work(2000), "b": work(2000)}, 0.01)
        verdicts[timing.paired_ratio(times["b"], times["a"]).verdict] += 1
    assert verdicts["faster"] <= 10, verdicts
    assert verdicts["slower"] <= 10, verdicts


@pytest.mark.usefixtures("brief")
def test_twice_the_work_takes_twice_the_time() -> None:
    ratios = []
    for _ in range(5):
        times = timing.interleave({"one": work(20_000), "two": work(40_000)}, 0.1)
        ratios.append(timing.paired_ratio(times["two"], times["one"]))
    middle = sorted(ratios, key=lambda ratio: ratio.value)[2]
    assert 1.8 < middle.value < 2.2
    assert middle.verdict == "slower"


def test_slow_drift_disturbs_both_alike() -> None:
    start = time.perf_counter()

    def drifting(factor: float) -> Any:
        return lambda: time.sleep(factor * (0.001 + 0.004 * (time.perf_counter() - start)))

    times = timing.interleave({"a": drifting(1.0), "b": drifting(1.5)}, 0.3)
    assert timing.paired_ratio(times["b"], times["a"]).value == pytest.approx(1.5, rel=0.12)


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    draw, covered = random.Random(0), 0
    for _ in range(2000):
        _, low, high = timing.median_interval([draw.lognormvariate(0, 1) for _ in range(21)], 0.95)
        covered += low <= 1.0 <= high
    assert covered / 2000 > 0.94


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.5, 0.6, "faster"), (0.97, 1.02, "no difference"), (0.98, 0.995, "no difference"), (1.2, 1.4, "slower")],
)
def test_no_claim_inside_the_noise(low: float, high: float, verdict: str) -> None:
    assert timing.Ratio(value=(low + high) / 2, low=low, high=high).verdict.startswith(verdict)


@pytest.mark.parametrize("runtime", ["eager", "onnxruntime", "openvino"])
def test_latency_in_each_runtime(runtime: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    before, threads = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_num_threads()
    found = latency(model, torch.randn(2, 3, 16, 16), runtime, threads=1, seconds=0.05)
    assert 0 < found.low_ms <= found.median_ms <= found.high_ms
    assert (found.batch, found.threads, found.runtime) == (2, 1, runtime)
    assert model.training
    assert torch.get_num_threads() == threads
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_comparison_table() -> None:
    small, large = nn.Linear(8, 8), nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)])
    models = {"large": large, "small": nn.Sequential(nn.Linear(256, 8), small)}
    timed = compare(models, torch.randn(64, 256), threads=1, seconds=0.1)
    assert timed.ratio("small", "large").verdict == "faster"
    assert "faster" in timed.table()
    with pytest.raises(ConfigError, match="was not measured"):
        timed.ratio("small", "huge")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"runtime": "tensorrt"}, "unknown runtime"), ({"threads": 0}, "threads"), ({"threads": 1.5}, "threads")],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        latency(nn.Linear(2, 2), torch.rand(1, 2), **options)


def test_layers_and_their_madds() -> None:
    model = create("pcshrink:resnet20")
    example = torch.randn(2, 3, 32, 32)
    layers = layers_of(model, example)
    total = sum(layer.madds for calls in layers.values() for layer in calls)
    assert total == 2 * pcs.profile(model, example).madds


def test_why_it_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_times(monkeypatch, 16)
    dense = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3))
    odd = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Conv2d(32, 37, 3), nn.Conv2d(37, 64, 3))
    changes = explain(dense, odd, torch.randn(1, 3, 56, 56), LayerTable("eager"))
    assert "37 channels are not a multiple of 16" in changes[0].reason
    assert changes[-1].reason == ""
    assert "37 channels" in table_of(changes)


def test_staircase_of_this_machine() -> None:
    found = staircase.measure_staircase("eager", threads=1, size=8, seconds=0.02)
    assert found.align in staircase.MULTIPLES
    assert set(found.nanoseconds) == set(staircase.WIDTHS)
    assert "align" in str(found)


@pytest.mark.parametrize("step", [1, 4, 8, 16, 32])
def test_the_alignment_is_the_step_of_the_stairs(step: int) -> None:
    times = {width: (-(-width // step) * step / width) ** 2 for width in staircase.WIDTHS}
    assert staircase.choose(times) == step


def test_align_auto_does_without_onnxruntime_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        staircase, "measure_alignment", lambda runtime, threads: {"eager": 4, "onnxruntime": 8}[runtime]
    )
    assert staircase.auto_alignment() == 8
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert staircase.auto_alignment() == 4
    attached = pcs.attach_(create("pcshrink:digitsnet"), torch.randn(1, 1, 8, 8), pcs.ShrinkConfig(align="auto"))
    assert set(attached.align.values()) == {4}
    assert staircase.auto_alignment("eager") == 4
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match="needs onnxruntime, which is not installed"):
        staircase.auto_alignment("onnxruntime")


@pytest.mark.parametrize("name", ["pcshrink:resnet20", "torchvision:mobilenet_v3_small"])
def test_layers_after_a_plan_are_those_of_the_compact_network(name: str) -> None:
    model, example = create(name).eval(), torch.randn(1, 3, 32, 32)
    dense = layers_of(model, example)
    attached = pcs.attach_(model, example, pcs.ShrinkConfig(prove=False))
    plan = attached.plan({g.name: torch.arange(g.channels) % 3 > 0 for g in attached.groups})
    small = apply_plan(model, plan)
    remove_gates_(small)
    assert narrowed(dense, plan) == layers_of(small, example)


def test_layer_is_a_key() -> None:
    layer = Layer("Linear", (2, 8), 8, 4)
    table = LayerTable("eager", threads=1, seconds=0.01)
    table.measure([layer, layer])
    assert list(table.times) == [layer]
    with pytest.raises(ConfigError, match="compile"):
        LayerTable("compiled")
