"""The named ablations: the settings that the paper's tables compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One row: what it is called and what it changes.

    Attributes:
        label: Its name.
        changes: ``section.key=value`` texts.
        plain: Train the dense network for as many epochs instead, without gates.
    """

    label: str
    changes: tuple[str, ...]
    plain: bool = False


@dataclass(frozen=True)
class Ablation:
    """A named set of settings.

    Attributes:
        about: What it shows.
        settings: The rows.
        budget: Whether the recipe's budget holds; without it the cost follows from the settings, as in the paper.
    """

    about: str
    settings: tuple[Setting, ...]
    budget: bool = False


def _each(label: str, key: str, values: Sequence[str]) -> tuple[Setting, ...]:
    return tuple(Setting(f"{label} = {value}", (f"{key}={value}",)) for value in values)


NO_PUSH = "shrink.strength=1e-9"  # the paper's K = 0: gates are trained, and no channel is pushed far enough to leave
KEEP_GATES = ("shrink.gates=keep", "shrink.fold_over=0.5")  # the latter its default, for recipes that fold otherwise

NAMED = {
    "k": Ablation(
        "how many of the channels may leave",
        (
            Setting("K = 0", (NO_PUSH,)),
            *(
                Setting(f"K = {name} C", (f"shrink.ratio={ratio}",))
                for name, ratio in (("1/4", 0.25), ("1/2", 0.5), ("3/4", 0.75))
            ),
        ),
    ),
    "alpha": Ablation(
        "weight of the newest batch in the running salience",
        _each("alpha", "shrink.alpha", ("0.5", "0.1", "0.05")),
        budget=True,
    ),
    "lambda": Ablation(
        "how hard the channels are pushed, as multiples of preset B",
        (
            Setting("0.5 B", ("shrink.strength=0.5",)),
            Setting("A, lambda = 4e-6", ("shrink.strength=A",)),
            Setting("B, lambda = 6e-6", ("shrink.strength=B",)),
            Setting("C, lambda = 8e-6", ("shrink.strength=C",)),
            Setting("2 B", ("shrink.strength=2",)),
        ),
    ),
    "generator": Ablation(
        "the network as it is, and with salience generators that stay; nothing is shrunk",
        (Setting("no generator", (), plain=True), Setting("generator, K = 0", (NO_PUSH, *KEEP_GATES))),
    ),
    "policy": Ablation(
        "one choice of channels for all inputs, or one for each input",
        (Setting("pcs, running", ()), Setting("pcs-input", ("shrink.method=pcs-input",))),
    ),
    "truncation": Ablation(
        "pushing the lowest channels, cutting them at once, pushing all",
        (
            Setting("pcs", ()),
            Setting("truncation, 30 %", ("shrink.method=truncation", "shrink.ratio=0.3")),
            Setting("lasso", ("shrink.method=lasso",)),
        ),
    ),
}
