"""The same code on less data: pages and notebooks run as they stand, only sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

TRAIN, TEST = 192, 64  # images


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


def hurry_() -> None:
    """Do both for good, in a process that was started for it."""
    from pcshrink.data import digits
    from pcshrink.train.recipe import read

    digits.load_digits = few_digits(digits.load_digits)
    read.load_recipe = short_recipes(read.load_recipe)
