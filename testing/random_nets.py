"""Networks put together at random, and the property they must have: equal, or refused with a reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import pcshrink as pcs
from testing.checks import outputs, random_keep, relative, stir_gates_, train_once
from testing.nets import randomise_
from testing.random_ops import TABLE, Operation

BATCH, SIDE = 3, 8
LIMIT, TRAIN_LIMIT = 1e-12, 1e-8


class Picker:
    """Chooses among options by a source of whole numbers below a bound, and writes down what it chose."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below
        self.notes: list[int] = []

    def __call__(self, *options: Any) -> Any:
        """One of the options."""
        number = self.below(len(options)) if len(options) > 1 else 0
        self.notes.append(number)
        return options[number]


@dataclass
class Step:
    """Values ``inputs`` go through ``apply`` and become new values."""

    name: str
    inputs: tuple[int, ...]
    apply: Any
    notes: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        """One line, with the module written out."""
        what = repr(self.apply) if isinstance(self.apply, nn.Module) else f"{self.name}{list(self.notes)}"
        return f"{what} of {', '.join(f'v{i}' for i in self.inputs)}"


class Block(nn.Module):
    """Runs its steps in order on a growing list of values."""

    def __init__(self, steps: list[Step], residual: bool = False) -> None:
        super().__init__()
        modules = {f"s{i}": s.apply for i, s in enumerate(steps) if isinstance(s.apply, nn.Module)}
        self.layers = nn.ModuleDict(modules)
        self.steps = [(s.inputs, None if f"s{i}" in modules else s.apply) for i, s in enumerate(steps)]
        self.residual = residual
        self.notes = [f"{', '.join(map(str, s.inputs))} -> {s.name}{list(s.notes)}" for s in steps]

    def extra_repr(self) -> str:
        """Its steps, for the text of a network."""
        return "; ".join(self.notes) + ("; residual" if self.residual else "")

    def run(self, *given: Tensor) -> list[Tensor]:
        """All values."""
        values = list(given)
        for number, (inputs, plain) in enumerate(self.steps):
            out = (plain or self.layers[f"s{number}"])(*(values[i] for i in inputs))
            values += [out] if isinstance(out, Tensor) else list(out)
        return values

    def forward(self, x: Tensor) -> Tensor:
        """The last value, maybe added to the first."""
        last = self.run(x)[-1]
        return last + x if self.residual else last


class RandomNet(Block):
    """A network: an image, and maybe a second one, to linear layers on some of the values."""

    def __init__(self, given: int, steps: list[Step], ends: list[list[int]], widths: list[int], style: str) -> None:
        super().__init__(steps)
        self.heads = nn.ModuleList([nn.Linear(w, 4) for w in widths])
        self.given, self.ends, self.style = given, ends, style
        self.script = _script(steps, given) + f"\nreturns {style} of {ends}"

    def forward(self, *given: Tensor) -> Any:
        """The heads' outputs: one tensor, a tuple or a dict; ``raw`` gives a feature map as well."""
        values = self.run(*given)
        pooled = [torch.cat([_pooled(values[i]) for i in end], 1) for end in self.ends]
        found = [head(x) for head, x in zip(self.heads, pooled, strict=False)]
        if self.style == "training":
            return tuple(found) if self.training else found[0]
        if self.style == "raw":
            return found[0], values[self.ends[-1][0]]
        return {"tensor": found[0], "tuple": tuple(found), "dict": dict(enumerate(found))}[self.style]


def _pooled(x: Tensor) -> Tensor:
    if x.ndim == 4:
        return x.mean((2, 3))
    return x.mean(1) if x.ndim == 3 else x


SHAPES = ((BATCH, 3, SIDE, SIDE), (BATCH, 2, SIDE, SIDE))
ENTRIES = [entry for entry in TABLE for _ in range(4 if entry.common else 1)]
FIRST = next(entry for entry in TABLE if entry.name == "conv")


def build(below: Callable[[int], int], most: int = 14) -> RandomNet:
    """Put a network together; ``below(n)`` gives a number from 0 to n - 1 and decides everything."""
    pick = Picker(below)
    given = pick(1, 1, 1, 2)
    values = [torch.zeros(shape) for shape in SHAPES[:given]]
    steps: list[Step] = []
    for i in range(given):
        _add_step(FIRST, pick, values, steps, [i])
    _grow(pick, values, steps, pick(*range(2, most + 1)), given)
    style = pick("tensor", "tensor", "tensor", "tuple", "dict", "raw", "training")
    used = {i for step in steps for i in step.inputs}
    loose = [i for i in range(given, len(values) - 1) if i not in used and pick(True, True, True, False)]
    ends = [[*loose, len(values) - 1], *([] if style == "tensor" else [[pick(*range(len(values)))]])]
    widths = [sum(_pooled(values[i]).shape[1] for i in end) for end in ends]
    return RandomNet(given, steps, ends, widths[:1] if style == "raw" else widths, style)


def _script(steps: list[Step], given: int) -> str:
    """The network as text."""
    lines = [f"v{i} {shape} is given" for i, shape in enumerate(SHAPES[:given])]
    count = given
    for step in steps:
        names = ", ".join(f"v{count + i} {shape}" for i, shape in enumerate(step.shapes))
        lines.append(f"{names} = {step}")
        count += len(step.shapes)
    return "\n".join(lines)


def _grow(pick: Picker, values: list[Tensor], steps: list[Step], count: int, given: int = 0) -> None:
    for _ in range(count):
        for _attempt in range(8):
            way = pick(*["table"] * 12, "again", "again", *(["block"] * 2 if given else []))
            if way == "block":
                done = _add_block(pick, values, steps)
            elif way == "again":
                done = _add_again(pick, values, steps)
            else:
                entry = pick(*ENTRIES)
                inputs = _choose_inputs(entry, pick, values, given)
                done = inputs is not None and _add_step(entry, pick, values, steps, inputs)
            if done:
                break


def _choose_inputs(entry: Operation, pick: Picker, values: list[Tensor], given: int) -> list[int] | None:
    """Values of fitting rank, newer ones more often, given ones never."""
    inputs = []
    for rank in entry.ranks:
        fitting = [i for i, v in enumerate(values) if v.ndim == rank and i >= given]
        if not fitting:
            return None
        inputs.append(pick(*reversed(fitting[-6:]), *reversed(fitting[-2:])))
    return inputs


def _add_step(entry: Operation, pick: Picker, values: list[Tensor], steps: list[Step], inputs: list[int]) -> bool:
    """Add one operation; False where it does not fit."""
    pick.notes = []
    apply = entry.make(pick, *(values[i] for i in inputs))
    return apply is not None and _append(Step(entry.name, tuple(inputs), apply, tuple(pick.notes)), values, steps)


def _add_again(pick: Picker, values: list[Tensor], steps: list[Step]) -> bool:
    """Call a module once more, on another value."""
    modules = [s for s in steps if isinstance(s.apply, nn.Module) and len(s.inputs) == 1]
    if not modules:
        return False
    step = pick(*modules)
    like = values[step.inputs[0]]
    fitting = [i for i, v in enumerate(values) if v.ndim == like.ndim and v.shape[1] == like.shape[1]]
    if like.ndim == 3:
        fitting = [i for i in fitting if values[i].shape == like.shape]
    return _append(Step("again", (pick(*reversed(fitting)),), step.apply), values, steps)


def _add_block(pick: Picker, values: list[Tensor], steps: list[Step]) -> bool:
    """A few operations in a module of their own, maybe with a way around them."""
    start = pick(*range(len(values) - 1, 0, -1)) if len(values) > 1 else 0
    inner_values, inner_steps = [values[start]], list[Step]()
    _grow(pick, inner_values, inner_steps, pick(2, 3, 4))
    if not inner_steps:
        return False
    residual = inner_values[0].shape == inner_values[-1].shape and pick(True, False)
    return _append(Step("block", (start,), Block(inner_steps, residual)), values, steps)


def _append(step: Step, values: list[Tensor], steps: list[Step]) -> bool:
    """Run a new step once to see what it makes; leave it out where that fails or is too large."""
    if isinstance(step.apply, nn.Module):
        step.apply.eval()
    try:
        with torch.no_grad():
            out = step.apply(*(values[i].clone() for i in step.inputs))
    except (RuntimeError, ValueError, IndexError):
        return False
    made = [out] if isinstance(out, Tensor) else list(out)
    if any(t.numel() == 0 or t.numel() > 20_000 for t in made):
        return False
    step.shapes = tuple(tuple(t.shape) for t in made)
    values += made
    steps.append(step)
    return True


@dataclass
class Outcome:
    """What became of one network."""

    kind: str  # equal, refused (at once), late (only when cutting) or failed
    detail: str = ""
    groups: int = 0


def check(net: RandomNet, seed: int = 0) -> Outcome:
    """Attach, cut at random, compare: in evaluation mode, folded, and in training mode."""
    torch.manual_seed(seed)
    model = randomise_(net).double().eval()
    example, other = (tuple(torch.randn(s).double() for s in SHAPES[: net.given]) for _ in range(2))
    try:
        shrinker = pcs.attach_(model, example)
    except pcs.ShrinkError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    stir_gates_(model)
    trains = _can_train(model, other)
    for number, share in enumerate((None, 0.3)):
        plan = shrinker.plan(random_keep(shrinker, seed + number, share))
        try:
            small = pcs.compact(model, plan, example)
            pcs.compact(model, plan, example, gates="fold")  # proves itself
        except pcs.ShrinkError as error:
            return Outcome("late", f"{type(error).__name__}: {error}", len(shrinker.groups))
        shrinker.mask_(plan)
        twin = copy.deepcopy(model)
        shrinker.unmask_()
        worst = relative(outputs(twin, other), outputs(small, other))
        if not worst <= LIMIT:
            return Outcome("failed", f"compact differs by {worst:.3g}")
        worst = relative(_trained(twin, other), _trained(small, other))
        if not worst <= TRAIN_LIMIT and not _draws(model):
            return Outcome("failed", f"compact differs by {worst:.3g} in training mode")
        if trains:
            train_once(small, other)
    return Outcome("equal", groups=len(shrinker.groups))


def _draws(model: nn.Module) -> bool:
    """Whether it draws random numbers in training: a smaller model draws others."""
    return any(isinstance(m, nn.modules.dropout._DropoutNd) for m in model.modules())


def _can_train(model: nn.Module, example: Any) -> bool:
    """Whether the network can be trained at all: writing in place may spoil what the backward pass needs."""
    try:
        train_once(copy.deepcopy(model), example)
    except (RuntimeError, AssertionError):
        return False
    return True


def _trained(model: nn.Module, example: Any) -> list[Tensor]:
    torch.manual_seed(0)
    model.train()
    try:
        return outputs(model, example)
    finally:
        model.eval()
