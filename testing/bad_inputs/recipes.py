"""Mistakes in recipes: a value that cannot be, files that are no recipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from pcshrink.train.callbacks import Callback
from pcshrink.train.recipe.read import load_recipe
from pcshrink.train.run import train
from testing.bad_inputs.case import Case, cases
from testing.bad_inputs.place import Place

SETTINGS = """
seed=-1
seed=one
seed=1.5
model.name=
model.name=3
model.name=[resnet20]
model.args=3
model.args={nope: 3}
model.args={num_classes: 7}
model.args={widths: wide}
model.pretrained=maybe
model.nope=1
data.name=digit
data.root=3
data.batch_size=0
data.batch_size=-4
data.batch_size=many
data.batch_size=1.5
data.eval_batch_size=0
data.padding=-1
data.padding=99
data.cutout=-1
data.image_size=32
data.image_size=0
data.resize_size=16
data.interpolation=cubic
data.rand_augment=true
data.classes=[a, b]
data.holdout=0
data.holdout=1.5
data.split_seed=x
data.mean=[0.1, 0.2]
data.mean=0.5
data.std=[0]
data.std=[-1]
data.std=[.nan]
data.mean=[.inf]
data.workers=-1
data.flip=perhaps
epochs.dense=-1
epochs.dense=1.5
epochs.shrink=0
epochs.shrink=ten
epochs.settle=-2
epochs.warmup=no
optimizer.name=lion
optimizer.lr=0
optimizer.lr=-0.1
optimizer.lr=.nan
optimizer.lr=.inf
optimizer.lr=abc
optimizer.settle_lr=0
optimizer.momentum=1
optimizer.momentum=-0.1
optimizer.weight_decay=-1
optimizer.weight_decay=.inf
optimizer.betas=[0.9]
optimizer.betas=[2, 3]
optimizer.schedule=linear
optimizer.milestones=[2]
optimizer.gamma=1
optimizer.final_lr=2
optimizer.lr_warmup=-1
optimizer.clip=0
optimizer.accumulate=0
optimizer.nope=1
train.label_smoothing=1
train.label_smoothing=.nan
train.mixup=-1
train.mixup=.inf
train.ema=1
train.precision=fp8
train.compile=perhaps
train.accelerator=tpu
train.accelerator=cuda
train.threads=0
train.nope=1
shrink.method=pcss
shrink.ratio=0
shrink.ratio=1
shrink.ratio=.nan
shrink.ratio={"nope.*": 0.5}
shrink.ratio={}
shrink.strength=D
shrink.strength=-1
shrink.strength=.inf
shrink.alpha=0
shrink.alpha=1
shrink.threshold=0
shrink.threshold=.nan
shrink.align=0
shrink.align=999
shrink.align=wide
shrink.min_channels=0
shrink.min_channels=1
shrink.min_channels=9999
shrink.include=conv
shrink.include=[nope]
shrink.exclude=["*"]
shrink.exclude=[nope]
shrink.gates=drop
shrink.compact_every=-1
shrink.price=gold
shrink.nope=1
shrink.budget={}
shrink.budget=0.5
shrink.budget={madds: 0}
shrink.budget={madds: -1}
shrink.budget={madds: .nan}
shrink.budget={madds: 0.5, params: 0.5}
shrink.budget={madds: 0.0001}
shrink.budget={madds: 1.0}
shrink.budget={madds: 99999999999}
shrink.budget={latency: 1.5}
shrink.budget={latency: 0.5, runtime: nope}
shrink.budget={latency: 0.5, batch: 0}
shrink.budget={latency: 0.5, threads: 0}
shrink.budget={nope: 1}
shrink.budget={madds: 0.5, convention: mine}
shrink.like=missing
distill.teacher=nope
distill.loss=l1
distill.weight=2
distill.temperature=0
distill.nope=1
output.checkpoint_steps=-1
output.latency=perhaps
output.nope=1
output.loggers=[nope]
nope=1
description=[1]
""".strip().splitlines()

# Fine as it is, and at once in the shrinking phase.
BASE = """
model: {name: digitsnet, args: {widths: [4, 4, 8]}}
data: {name: digits}
epochs: {shrink: 4, settle: 1}
train: {threads: 1}
shrink: {budget: {madds: 0.5}, gates: fold, compact_every: 1}
"""
REST = "data: {name: digits}\nepochs: {dense: 1}\n"
TEXTS = {
    "an empty file": "",
    "a list": "- a\n- b\n",
    "a single word": "resnet20\n",
    "broken YAML": "model: {name: [\n",
    "a tab": "model:\n\tname: resnet20\n",
    "code": "model: !!python/object/apply:os.getcwd []\n",
    "no model": "data: {name: digits}\nepochs: {dense: 1}\n",
    "no data": "model: {name: digitsnet}\nepochs: {dense: 1}\n",
    "no epochs": "model: {name: digitsnet}\ndata: {name: digits}\n",
    "no epochs at all": "model: {name: digitsnet}\ndata: {name: digits}\nepochs: {}\n",
    "the same section twice": "model: {name: digitsnet}\nmodel: {name: resnet20}\n" + REST,
    "the same key twice": "model: {name: digitsnet, name: resnet20}\ndata: {name: digits}\nepochs: {dense: 1}\n",
    "a number for a section": "model: 3\ndata: {name: digits}\nepochs: {dense: 1}\n",
    "shrinking without a shrink section": "model: {name: digitsnet}\ndata: {name: digits}\nepochs: {shrink: 1}\n",
    "an alias to nothing": "model: *other\n",
    "keys that are no text": "model: {name: digitsnet}\ndata: {name: digits}\nepochs: {dense: 1}\n3: 4\n",
    "a distilled network without a teacher": (
        "model: {name: digitsnet}\ndata: {name: digits}\nepochs: {dense: 1}\ndistill: {teacher: dense}\n"
    ),
}


class _Started(Callback):
    """Ends a run at its first step: whatever was wrong was not noticed."""

    def after_step(self, loop: Any) -> None:
        raise StopIteration


def started(recipe: Any, out: Any, **options: Any) -> None:
    """Begin a training that ends at its first step."""
    callbacks = [*options.pop("callbacks", ()), _Started()]
    with contextlib.suppress(StopIteration):
        train(recipe, out, quiet=True, callbacks=callbacks, **options)


def _train(place: Place, source: Any, settings: list[str]) -> None:
    started(load_recipe(source, settings), place.fresh() / "out")


def _setting(text: str) -> Callable[[Place], object]:
    def act(place: Place) -> None:
        path = place.fresh() / "base.yaml"
        path.write_text(BASE)
        _train(place, path, [text])

    return act


def _text(text: str) -> Callable[[Place], object]:
    def act(place: Place) -> None:
        path = place.fresh() / "mine.yaml"
        path.write_text(text)
        _train(place, path, [])

    return act


def _bytes(place: Place) -> None:
    path = place.fresh() / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00binary")
    _train(place, path, [])


def recipes() -> list[Case]:
    """Values and files."""
    table = [(line, _setting(line)) for line in SETTINGS]
    table += [(name, _text(text)) for name, text in TEXTS.items()]
    return cases("recipe", [*table, ("bytes that are no text", _bytes)])
