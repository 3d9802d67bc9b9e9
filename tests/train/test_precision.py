"""``train.precision: auto`` takes what the hardware multiplies quickly, and only where that really works."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcshrink.doctor.kernels import Trial
from pcshrink.errors import ConfigError, ShrinkWarning
from pcshrink.train import precision
from pcshrink.train.history import History
from pcshrink.train.run import train
from testing.training import tiny


def machine(monkeypatch: pytest.MonkeyPatch, announces: list[str], trial: Trial) -> None:
    monkeypatch.setattr(precision, "announced", lambda: announces)
    monkeypatch.setattr(precision, "try_kernel", lambda _: trial)


@pytest.mark.parametrize(("announces", "name"), [
    (["avx2", "avx512f", "avx512_vnni"], "32-true"),
    (["avx512f", "avx512_bf16"], "bf16-mixed"),
    (["amx_tile", "amx_bf16"], "bf16-mixed"),
    ([], "32-true"),
])  # fmt: skip
def test_auto_follows_the_processor(monkeypatch: pytest.MonkeyPatch, announces: list[str], name: str) -> None:
    machine(monkeypatch, announces, Trial(works=True))
    assert precision.fabric_precision("auto", "cpu") == name


def test_a_processor_that_announces_too_much_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, ["amx_bf16"], Trial(works=False, trouble="ended by SIGILL", remedy="set ISA=LESS"))
    with pytest.warns(ShrinkWarning, match="set ISA=LESS"):
        assert precision.fabric_precision("auto", "cpu") == "32-true"


def test_what_is_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, [], Trial(works=False))
    assert precision.fabric_precision("bf16", "cpu") == "bf16-mixed"
    assert precision.fabric_precision("fp64", "cpu") == "32-true"
    assert precision.fabric_precision("auto", "mps") == "32-true"


def test_processes_that_chose_differently_are_told_what_to_set() -> None:
    precision.check_alike(["bf16-mixed", "bf16-mixed"])
    with pytest.raises(ConfigError, match=r"process 1: 32-true\); set it, fp32"):
        precision.check_alike(["bf16-mixed", "32-true"])


@pytest.mark.train
@pytest.mark.parametrize(("wanted", "products"), [("bf16", "bfloat16"), ("fp64", "float64"), ("auto", "float32")])
def test_a_run_tells_what_it_multiplies(
    monkeypatch: pytest.MonkeyPatch, wanted: str, products: str, tmp_path: Path
) -> None:
    machine(monkeypatch, [], Trial(works=True))
    epochs = {"dense": 1}
    output = {"latency": False}
    train(
        tiny(train={"precision": wanted}, epochs=epochs, shrink=None, distill=None, output=output), tmp_path, quiet=True
    )
    assert History.open(tmp_path).facts["products"] == products
