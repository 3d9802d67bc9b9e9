"""Mistakes in calls of the library that say one thing and mean another: what does not belong together."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import pcshrink as pcs
from pcshrink.data import Preprocessing, predict
from pcshrink.export import export_pt2
from pcshrink.methods.registry import method_class
from pcshrink.models import create
from testing.bad_inputs.case import Case, cases
from testing.bad_inputs.place import SEEN, Place

COLOURED = Preprocessing(input_size=(3, 32, 32), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
TWO = Preprocessing(input_size=(1, 8, 8), mean=(0.3,), std=(0.3,), classes=("cat", "dog"))
NO_PREPROCESSING: dict[str, Any] = {
    "input_size=224": {"input_size": 224}, "mean=0.5": {"mean": 0.5}, "mean of text": {"mean": ("a",)},
    "classes of one text": {"classes": "cat"}, "classes of numbers": {"classes": (1, 2)},
}  # fmt: skip


def _transferred(place: Place, optimizer: type[torch.optim.Optimizer]) -> object:
    shrinker = place.shrinker()
    made = optimizer(shrinker.model.parameters())

    def loss() -> float:
        made.zero_grad()
        value = shrinker.model(place.example).square().sum()
        value.backward()
        return float(value)

    made.step(loss)
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    small = pcs.compact(shrinker.model, plan, place.example)
    return pcs.transfer(made, shrinker.model, small, plan)


def _attached_in_inference_mode(place: Place) -> object:
    model = place.net()
    with torch.inference_mode():
        return pcs.attach_(model, place.example)


def _with_state(place: Place, **changes: Any) -> object:
    shrinker = place.shrinker()
    return shrinker.load_state_dict(shrinker.state_dict() | changes)


def _state_of_another(place: Place, width: int) -> object:
    wide = pcs.attach_(create("digitsnet", widths=[width] * 3), place.example, pcs.ShrinkConfig(prove=False))
    return place.shrinker().load_state_dict(wide.state_dict())


def _widened(place: Place) -> pcs.PrunePlan:
    data = place.plan.to_dict()
    next(iter(data["groups"].values()))["keep"] = "0-99"
    return pcs.PrunePlan.from_dict(data)


def python_more() -> list[Case]:
    """All of them."""
    table: list[Any] = [
        (f"Preprocessing({name})", lambda p, c=change: Preprocessing(**vars(SEEN) | c))
        for name, change in NO_PREPROCESSING.items()
    ]
    return cases("python", [*table, *_SINGLE])


_SINGLE: list[Any] = [
    ("save images of another size", lambda p: pcs.save(
        p.fresh(), p.net(), None, input_shape=(1, 8, 8), preprocessing=COLOURED)),
    ("save images of other channels", lambda p: pcs.save(p.fresh(), p.net(), None, preprocessing=COLOURED)),
    ("save too few class names", lambda p: pcs.save(p.fresh(), p.net(), None, preprocessing=TWO)),
    ("save with a function for a builder", lambda p: pcs.save(p.fresh(), p.net(), None, lambda: p.net())),
    ("export images of another size", lambda p: pcs.export_onnx(
        p.net(), p.example, p.fresh() / "m.onnx", preprocessing=COLOURED)),
    ("export too few class names", lambda p: export_pt2(p.net(), p.example, p.fresh() / "m.pt2", preprocessing=TWO)),
    ("export to None", lambda p: pcs.export_onnx(p.net(), p.example, None)),
    ("predict a folder without images", lambda p: predict(p.saved, p.fresh())),
    ("latency with 100,000 threads", lambda p: pcs.latency(p.net(), p.example, threads=100_000)),
    ("transfer of Adafactor", lambda p: _transferred(p, torch.optim.Adafactor)),
    ("transfer of LBFGS", lambda p: _transferred(p, torch.optim.LBFGS)),
    ("plan of a list", lambda p: p.attached.plan([1, 2])),
    ("plan of a text", lambda p: p.attached.plan("dead")),
    ("plan from indices", lambda p: p.attached.plan({p.attached.groups[0].name: torch.arange(4)})),
    ("plan from shares", lambda p: p.attached.plan({p.attached.groups[0].name: torch.full((4,), 0.5)})),
    ("plan that keeps more than there is", _widened),
    ("PrunePlan from a list", lambda p: pcs.PrunePlan.from_dict([])),
    ("aim above the width", lambda p: p.shrinker().aim({p.attached.groups[0].name: 999})),
    ("load_state_dict without steps", lambda p: _with_state(p, state={})),
    ("load_state_dict of texts", lambda p: _with_state(p, state="x")),
    ("load_state_dict without settings", lambda p: _with_state(p, config=None)),
    ("load_state_dict of a wider network", lambda p: _state_of_another(p, 32)),
    ("step by a text", lambda p: p.shrinker().step(pushing="no")),
    ("ShrinkConfig(exclude=None)", lambda p: pcs.ShrinkConfig(exclude=None)),
    ("ShrinkConfig(include=(1, 2))", lambda p: pcs.ShrinkConfig(include=(1, 2))),
    ("ShrinkConfig(ratio={1: 0.5})", lambda p: pcs.ShrinkConfig(ratio={1: 0.5})),
    ("attach_ in inference mode", _attached_in_inference_mode),
    ("set_budget for a method without one", lambda p: pcs.set_budget(
        pcs.attach_(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), p.example,
                    method_class("mil").Config()), p.example, madds=0.5)),
]  # fmt: skip
