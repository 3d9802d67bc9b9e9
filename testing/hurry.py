"""The same code on less data and with shorter measurements: pages and notebooks run as they stand, only sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

TRAIN, TEST = 192, 64  # images
MOMENTS = {  # who measures: seconds, rounds
    "pcshrink.measure.latency": (0.05, 15),
    "pcshrink.measure.layers": (0.005, 2),
    "pcshrink.export.int8": (0.05, 15),
}


def few_digits(load: Callable[[], Any]) -> Callable[[], Any]:
    """``load_digits`` with fewer images."""

    def few() -> Any:
        images, labels, test_images, test_labels = load()
        return images[:TRAIN], labels[:TRAIN], test_images[:TEST], test_labels[:TEST]

    return few


def short_recipes(load: Callable[..., Any]) -> Callable[..., Any]:
    """``load_recipe`` with phases of one epoch, and nothing timed."""

    def short(source: Any, overrides: Iterable[str] = (), **options: Any) -> Any:
        epochs = [f"epochs.{phase}=1" for phase in ("dense", "shrink", "settle")]
        quick = [*overrides, *epochs, "epochs.warmup=0", "output.latency=false", "train.threads=1"]
        return load(source, quick, **options)

    return short


def short_timings(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Whole networks and layers are timed for a moment only: how precise that is, is asked elsewhere."""
    for name, (seconds, rounds) in MOMENTS.items():
        module = import_module(name)
        patch(module, "interleave", _briefly(module.interleave, seconds, rounds))


def _briefly(interleave: Callable[..., Any], most: float, rounds: int) -> Callable[..., Any]:
    def short(calls: Any, seconds: float, **options: Any) -> Any:
        return interleave(calls, min(seconds, most), rounds, **options)

    return short


def hurry_() -> None:
    """Do all of this for good, in a process that was started for it."""
    from pcshrink.data import digits
    from pcshrink.train.recipe import read

    digits.load_digits = few_digits(digits.load_digits)
    read.load_recipe = short_recipes(read.load_recipe)
    short_timings()
