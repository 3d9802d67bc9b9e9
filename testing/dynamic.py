"""Short runs and tiny networks for the tests of methods that choose for each input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.config import MethodConfig
from pcshrink.data import load_dataset
from pcshrink.data.config import DataConfig
from pcshrink.measure.activity import activity
from pcshrink.models import create
from pcshrink.shrinker import Shrinker
from pcshrink.surgery.gates import find_gates
from pcshrink.train.again import evaluate_saved
from pcshrink.train.result import Result
from pcshrink.train.run import train
from testing.nets import randomise_
from testing.training import CopyAt, model_bytes, tiny

EPOCHS = {"dense": 1, "warmup": 1, "shrink": 2, "settle": 1}  # of 22 steps
LONGER = EPOCHS | {"shrink": 4, "settle": 3}  # for what learns slowly


def check_run(folder: Path, shrink: dict[str, Any], *, stop: int = 70, **changes: Any) -> Result:
    """A whole run: it learns, what it reports is what the saved network does, and it can be resumed bit by bit."""
    torch.set_num_threads(1)
    sections: dict[str, Any] = {"epochs": EPOCHS, "data": {"name": "digits", "batch_size": 64}}
    sections |= {"optimizer": {"lr": 0.05}, "output": {"latency": False}}
    recipe = tiny(shrink=shrink, distill=None, **sections | changes)
    result = train(recipe, folder / "whole", quiet=True, callbacks=[CopyAt(stop, folder / "half")])
    assert result.compact["error"] < 40  # by chance it would be 90
    assert result.compact["params"] > result.dense["params"]  # kernels stay whole, and gates come on top
    assert result.compact["mem_access"] >= result.dense["mem_access"]
    _check_saved(folder / "whole", result)
    resumed = train(recipe, folder / "half", resume=True, quiet=True)
    assert model_bytes(folder / "half") == model_bytes(folder / "whole")
    assert resumed.dynamic == result.dynamic
    return result


def _check_saved(folder: Path, result: Result) -> None:
    assert evaluate_saved(folder)["error"] == result.compact["error"]
    images = [images for images, _ in load_dataset("digits", None, DataConfig(batch_size=64)).val.batches()]
    found = activity(pcs.load(folder / "model"), images)
    assert round(found.madds) == result.compact["madds"]
    assert result.dynamic is not None
    assert len(found.samples) == result.dynamic.images
    assert "dynamic" in result.table()
    assert "+-" in result.table()
    assert json.loads((folder / "result.json").read_text())["dynamic"]["madds"] == result.dynamic.madds


def gated(config: MethodConfig, seed: int = 0, **sizes: Any) -> tuple[nn.Module, Shrinker, Tensor]:
    """A tiny residual network in float64 with gates, and some images."""
    torch.manual_seed(seed)
    arguments: dict[str, Any] = {"widths": (4, 4, 8), "num_classes": 3} | sizes
    net = randomise_(create("digitsnet", **arguments)).double()
    images = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    shrinker = pcs.attach_(net, images, config)
    for gate in find_gates(net).values():
        for parameter in gate.parameters():
            nn.init.normal_(parameter, 0.2, 0.5)
    return net.eval(), shrinker, images
