"""Mistakes in calls of the library."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import pcshrink as pcs
from pcshrink.data import DataConfig, Preprocessing, load_dataset, predict, read_images
from pcshrink.models import create, default_input, usual_preprocessing
from pcshrink.train.recipe.read import check_recipe, load_recipe
from testing.bad_inputs.case import Case, cases
from testing.bad_inputs.place import Place
from testing.bad_inputs.recipes import started

NO_MODELS: dict[str, Any] = {
    "None": None, "a class": nn.Linear, "a text": "resnet20", "a tensor": torch.zeros(2), "a dict": {}, "a path": Path()
}  # fmt: skip
NO_PLANS: dict[str, Any] = {"None": None, "a dict": {}, "a text": "plan.json", "a list": [1]}
NO_INPUTS: dict[str, Any] = {
    "None": None, "a text": "image", "a number": 3, "a shape": (1, 8, 8), "three channels": torch.zeros(2, 3, 8, 8),
    "whole numbers": torch.zeros(2, 1, 8, 8, dtype=torch.long), "no batch": torch.zeros(1, 8, 8),
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "ratio": ["half", 0, 1, float("nan"), {}], "total_steps": [0, 1.5, "x"], "alpha": [0, 2], "strength": ["D", -1],
    "align": [0, "wide"], "min_channels": [0, 2.5], "include": ["conv"], "lr": [0, float("inf")], "optimizer": ["lion"],
}  # fmt: skip
DATA: dict[str, Any] = {
    "batch_size": [0, "x", 1.5], "mean": [(float("nan"),), "x"], "std": [(0.0,)], "image_size": [0, (8,)],
    "holdout": [0, 2], "workers": [-1],
}  # fmt: skip


def _scripted(place: Place) -> nn.Module:
    return torch.jit.trace(place.net().eval(), place.example)


def _silent(place: Place) -> nn.Module:
    model = place.net()
    model.register_forward_hook(lambda module, given, result: 3)
    return model


def _offline(place: Place) -> None:
    nowhere = "http://127.0.0.1:9"
    settings = {"TORCH_HOME": str(place.fresh()), "https_proxy": nowhere, "HTTPS_PROXY": nowhere}
    with mock.patch.dict(os.environ, settings), contextlib.redirect_stderr(io.StringIO()):
        create("torchvision:resnet18", pretrained=True)


def python_calls() -> list[Case]:
    """All of them."""
    table: list[Any] = []
    for name, thing in NO_MODELS.items():
        table += [
            (f"attach_({name})", lambda p, t=thing: pcs.attach_(t, p.example)),
            (f"detach_({name})", lambda p, t=thing: pcs.detach_(t)),
            (f"compact({name})", lambda p, t=thing: pcs.compact(t, p.plan, p.example)),
            (f"profile({name})", lambda p, t=thing: pcs.profile(t, p.example)),
            (f"latency({name})", lambda p, t=thing: pcs.latency(t, p.example)),
            (f"save({name})", lambda p, t=thing: pcs.save(p.fresh(), t, None)),
            (f"load(model={name})", lambda p, t=thing: pcs.load(p.bare, model=t)),
            (f"export_onnx({name})", lambda p, t=thing: pcs.export_onnx(t, p.example, p.fresh() / "m.onnx")),
            (f"fold({name})", lambda p, t=thing: pcs.fold(t)),
            (f"verify({name})", lambda p, t=thing: pcs.verify(t, p.net(), p.example)),
        ]
    # A full-size network that fits is what load(model=None) asks for by another name; the artifact has no builder.
    for name, thing in NO_PLANS.items():
        table.append((f"compact(plan={name})", lambda p, t=thing: pcs.compact(p.attached.model, t, p.example)))
        table.append((f"mask_({name})", lambda p, t=thing: p.shrinker().mask_(t)))
    table += [
        (f"save(plan={name})", lambda p, t=thing: pcs.save(p.fresh(), p.net(), t))
        for name, thing in NO_PLANS.items()
        if thing is not None
    ]
    for name, thing in NO_INPUTS.items():
        table += [
            (f"attach_(example={name})", lambda p, t=thing: pcs.attach_(p.net(), t)),
            (f"profile(example={name})", lambda p, t=thing: pcs.profile(p.net(), t)),
            (f"latency(example={name})", lambda p, t=thing: pcs.latency(p.net(), t)),
            (f"verify(example={name})", lambda p, t=thing: pcs.verify(p.net(), p.net(), t)),
            (f"export_onnx(example={name})", lambda p, t=thing: pcs.export_onnx(p.net(), t, p.fresh() / "m.onnx")),
        ]
    for key, values in CONFIGS.items():
        table += [(f"ShrinkConfig({key}={v!r})", lambda p, k=key, v=v: pcs.ShrinkConfig(**{k: v})) for v in values]
    for key, values in DATA.items():
        table += [(f"DataConfig({key}={v!r})", lambda p, k=key, v=v: DataConfig(**{k: v})) for v in values]
    return cases("python", [*table, *_SINGLE])


_SINGLE: list[Any] = [
    ("attach_ with swapped arguments", lambda p: pcs.attach_(p.example, p.net())),
    ("attach_ with a dict of settings", lambda p: pcs.attach_(p.net(), p.example, {"ratio": 0.5})),
    ("attach_ with an empty batch", lambda p: pcs.attach_(p.net(), p.example[:0])),
    ("attach_ to a model that returns nothing", lambda p: pcs.attach_(_silent(p), p.example)),
    ("compact with an empty batch", lambda p: pcs.compact(p.attached.model, p.plan, p.example[:0])),
    ("verify with an empty batch", lambda p: pcs.verify(p.net(), create("digitsnet", widths=[4, 4, 8]), p.example[:0])),
    ("export of an empty batch", lambda p: pcs.export_onnx(p.net(), p.example[:0], p.fresh() / "m.onnx")),
    ("profile of an empty batch", lambda p: pcs.profile(p.net(), p.example[:0])),
    ("latency of an empty batch", lambda p: pcs.latency(p.net(), p.example[:0])),
    ("attach_ to a scripted model", lambda p: pcs.attach_(_scripted(p), p.example)),
    ("attach_ to nothing that shrinks", lambda p: pcs.attach_(nn.Flatten(), p.example)),
    ("aim at nothing", lambda p: p.shrinker().aim({"nope": 3})),
    ("aim at half a channel", lambda p: p.shrinker().aim({p.attached.groups[0].name: 0.5})),
    ("aim below zero", lambda p: p.shrinker().aim({p.attached.groups[0].name: -3})),
    ("aim with a list", lambda p: p.shrinker().aim([3])),
    ("k too large", lambda p: setattr(p.shrinker().groups[0], "k", 999)),
    ("penalty before any pass", lambda p: p.shrinker().penalty()),
    ("plan of nothing", lambda p: p.shrinker().plan()),
    ("plan of an unknown group", lambda p: p.attached.plan({"nope": torch.ones(4)})),
    ("plan of the wrong length", lambda p: p.attached.plan({p.attached.groups[0].name: torch.ones(99)})),
    ("plan that keeps nothing", lambda p: p.attached.plan({p.attached.groups[0].name: torch.zeros(4)})),
    ("plan from numbers", lambda p: p.attached.plan({p.attached.groups[0].name: 3})),
    ("plan with another cut", lambda p: p.attached.plan(cut="some")),
    ("load_state_dict of nothing", lambda p: p.shrinker().load_state_dict({})),
    ("load_state_dict of None", lambda p: p.shrinker().load_state_dict(None)),
    ("load_state_dict of weights", lambda p: p.shrinker().load_state_dict(p.net().state_dict())),
    ("param_groups below zero", lambda p: p.attached.param_groups(weight_decay=-1.0)),
    ("param_groups of text", lambda p: p.attached.param_groups(weight_decay="x")),
    ("settle beyond the end", lambda p: p.shrinker().settle(2.0)),
    ("settle by a text", lambda p: p.shrinker().settle("x")),
    ("compact with other gates", lambda p: pcs.compact(p.attached.model, p.plan, p.example, gates="drop")),
    ("compact another network", lambda p: pcs.compact(create("resnet20"), p.plan, torch.zeros(2, 3, 32, 32))),
    ("compact twice", lambda p: pcs.compact(pcs.load(p.saved), p.plan, p.example)),
    ("verify two networks", lambda p: pcs.verify(p.net(), create("digitsnet"), p.example)),
    ("set_budget of nothing", lambda p: pcs.set_budget(p.shrinker(), p.example)),
    ("set_budget of two", lambda p: pcs.set_budget(p.shrinker(), p.example, madds=0.5, params=0.5)),
    ("set_budget of zero", lambda p: pcs.set_budget(p.shrinker(), p.example, madds=0)),
    ("set_budget out of reach", lambda p: pcs.set_budget(p.shrinker(), p.example, madds=1e-6)),
    ("set_budget on a model", lambda p: pcs.set_budget(p.net(), p.example, madds=0.5)),
    ("transfer of no optimizer", lambda p: pcs.transfer(None, p.attached.model, p.net(), p.plan)),
    ("transfer with a dict for a plan", lambda p: pcs.transfer(
        torch.optim.SGD(p.attached.model.parameters(), lr=0.1), p.attached.model, p.net(), {})),
    ("profile by another convention", lambda p: pcs.profile(p.net(), p.example, convention="mine")),
    ("latency in no runtime", lambda p: pcs.latency(p.net(), p.example, runtime="tensorrt")),
    ("latency with no threads", lambda p: pcs.latency(p.net(), p.example, threads=0)),
    ("latency in no time", lambda p: pcs.latency(p.net(), p.example, seconds=-1)),
    ("latency for a text", lambda p: pcs.latency(p.net(), p.example, seconds="x")),
    ("save with another builder", lambda p: pcs.save(p.fresh(), p.net(), None, "resnet20")),
    ("save with no such builder", lambda p: pcs.save(p.fresh(), p.net(), None, "nope")),
    ("save with arguments and no builder", lambda p: pcs.save(p.fresh(), p.net(), None, builder_args={"a": 1})),
    ("save arguments that are no JSON", lambda p: pcs.save(
        p.fresh(), p.net(), None, "digitsnet", builder_args={"widths": {4, 8}})),
    ("save metrics that are no JSON", lambda p: pcs.save(p.fresh(), p.net(), None, metrics={"a": object()})),
    ("save metrics that are not finite", lambda p: pcs.save(p.fresh(), p.net(), None, metrics={"a": float("nan")})),
    ("save a shape of text", lambda p: pcs.save(p.fresh(), p.net(), None, input_shape="big")),
    ("save a shape of zero", lambda p: pcs.save(p.fresh(), p.net(), None, input_shape=(0, 8, 8))),
    ("save a dict of preprocessing", lambda p: pcs.save(p.fresh(), p.net(), None, preprocessing={"mean": 0})),
    ("save to a number", lambda p: pcs.save(3, p.net(), None)),
    ("load a number", lambda p: pcs.load(3)),
    ("load without a builder", lambda p: pcs.load(p.bare)),
    ("load into another network", lambda p: pcs.load(p.bare, model=create("resnet20"))),
    ("export for no batch", lambda p: pcs.export_onnx(p.net(), p.example, p.fresh() / "m.onnx", batch=0)),
    ("export to a folder", lambda p: pcs.export_onnx(p.net(), p.example, p.fresh())),
    ("export by no exporter", lambda p: pcs.export_onnx(p.net(), p.example, p.fresh() / "m", exporters=("nope",))),
    ("train a name", lambda p: started("digits", p.fresh() / "out")),
    ("train a dict", lambda p: started({"model": {"name": "digitsnet"}}, p.fresh() / "out")),
    ("train None", lambda p: started(None, p.fresh() / "out")),
    ("train to nowhere", lambda p: started(load_recipe("digits"), "")),
    ("train with no callback", lambda p: started(load_recipe("digits"), p.fresh() / "o", callbacks=[print])),
    ("train with no logger", lambda p: started(load_recipe("digits"), p.fresh() / "o", loggers=[3])),
    ("load_recipe of None", lambda p: load_recipe(None)),
    ("load_recipe with a text of settings", lambda p: load_recipe("digits", "epochs.shrink=3")),
    ("check_recipe of a list", lambda p: check_recipe([1])),
    ("create nothing", lambda p: create("")),
    ("create a number", lambda p: create(3)),
    ("create with an unknown argument", lambda p: create("resnet20", nope=3)),
    ("create with wrong values", lambda p: create("digitsnet", widths="wide")),
    ("create timm with an unknown argument", lambda p: create("timm:resnet18", nope=3)),
    ("published weights without a connection", _offline),
    ("published weights for other classes", lambda p: create("torchvision:resnet18", pretrained=True, num_classes=7)),
    ("create a typo of torchvision", lambda p: create("torchvision:resnt18")),
    ("default_input of nothing", lambda p: default_input("nope")),
    ("usual_preprocessing of nothing", lambda p: usual_preprocessing("nope")),
    ("Preprocessing of nothing", lambda p: Preprocessing.from_dict({})),
    ("Preprocessing of a text", lambda p: Preprocessing.from_dict("x")),
    ("load_dataset of nothing", lambda p: load_dataset("nope")),
    ("load_dataset of None", lambda p: load_dataset(None)),
    ("load_dataset with a dict", lambda p: load_dataset("digits", config={"batch_size": 3})),
    ("load_dataset of a rank beyond", lambda p: load_dataset("digits", rank=3, world_size=2)),
    ("read no images", lambda p: read_images([], Preprocessing(input_size=(1, 8, 8), mean=(0.0,), std=(1.0,)))),
    ("predict with no top", lambda p: predict(p.saved, [p.picture], top=0)),
    ("PrunePlan from nothing", lambda p: pcs.PrunePlan.from_json("")),
    ("PrunePlan from a number", lambda p: pcs.PrunePlan.from_json("3")),
    ("PrunePlan from None", lambda p: pcs.PrunePlan.from_json(None)),
]  # fmt: skip
