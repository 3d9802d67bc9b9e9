"""One short training on digits that every static method must pass, and networks to try formulas on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.config import MethodConfig
from pcshrink.methods.base import Method
from pcshrink.train.recipe.read import check_recipe
from pcshrink.train.recipe.schema import Recipe
from pcshrink.train.result import Result
from pcshrink.train.run import train
from testing.training import CopyAt, model_bytes, train_with_stops

EPOCHS = {"dense": 1, "shrink": 2, "settle": 2}
STEPS = 22  # an epoch has


def short_recipe(method: str, *, dense: int = 1, onnx: bool = False, **settings: Any) -> Recipe:
    """Some epochs in some seconds: dense, shrinking, settling; half of the multiply-adds go."""
    return check_recipe({
        "model": {"name": "digitsnet", "args": {"widths": [8, 8, 16]}},
        "data": {"name": "digits", "batch_size": 64},
        "epochs": EPOCHS | {"dense": dense},
        "optimizer": {"lr": 0.05},
        "train": {"threads": 1},
        "shrink": {"method": method, "budget": {"madds": 0.5}, **settings},
        "output": {"latency": False, "onnx": onnx},
    })  # fmt: skip


def check_short_run(folder: Path, method: str, *, dense: int = 1, **settings: Any) -> Result:
    """Train, and see that it learns, meets its budget, comes back from its files, exports, and resumes bit by bit."""
    recipe = short_recipe(method, dense=dense, **settings)
    copy = CopyAt((dense + 1) * STEPS + 7, folder / "again")  # within the phase
    whole = short_recipe(method, dense=dense, onnx=True, **settings)
    result = train(whole, folder / "whole", quiet=True, callbacks=[copy])
    assert result.compact["error"] < 30  # guessing is wrong in 90 of 100
    assert result.budget is not None
    assert result.budget.reached <= 1.01 * result.budget.limit
    assert result.budget.reached == pytest.approx(result.budget.limit, rel=0.01)
    _check_files(result)
    train_with_stops(recipe, folder / "again", (dense + 2) * STEPS + 7)  # after the phase
    assert model_bytes(folder / "again") == model_bytes(folder / "whole")
    return result


def _check_files(result: Result) -> None:
    """The saved network loads by itself, and its ONNX file computes the same."""
    loaded = pcs.load(result.model_dir)
    assert not any("pcs_" in name for name, _ in loaded.named_modules())
    import onnxruntime

    x = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = loaded(x).numpy()
    session = onnxruntime.InferenceSession(result.files["onnx"], providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


class Stream(nn.Module):
    """A residual stream with two writers of different kernels (``a`` and ``d``), and one channel group inside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.na = nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6)
        self.b, self.nb = nn.Conv2d(6, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5)
        self.d, self.nd = nn.Conv2d(5, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.na(self.a(x)).relu()
        y = (y + self.nd(self.d(self.nb(self.b(y)).relu()))).relu()
        scores: Tensor = self.head(y.mean((2, 3)))
        return scores


def attach_stream(config: MethodConfig, seed: int = 0) -> tuple[Any, Method[Any], Tensor]:
    """The stream in float64 with a method on it, and an input for it."""
    torch.manual_seed(seed)
    model = Stream().double()
    x = torch.randn(7, 3, 6, 6, dtype=torch.float64)
    shrinker = pcs.attach_(model, x[:2], config)
    return shrinker.model, shrinker.method, x
