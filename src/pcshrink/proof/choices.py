"""Compare networks that choose: top-k, sorting, non-maximum suppression, thresholds.

A detector's boxes jump when two scores that are equal to rounding change places, so its outputs alone say little. Here
the choices of one run are kept, with the values they were made from, and imposed on the other run. Then both
runs take the same path, everything in between is continuous, and the values before every choice are compared as well
as the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pcshrink.errors import VerificationError
from pcshrink.graph.record import Op, is_mutable, short_name

ROUNDING = ("floor", "ceil", "round", "trunc", "sign", "sgn", "floor_divide")
PICKING = ("topk", "sort", "max", "min", "median", "nanmedian", "kthvalue", "mode", "cummax", "cummin")
# Integers or flags that come with a result but do not choose anything, or do not depend on values.
INNOCENT = ("pool", "_like", "new_", "empty", "dropout", "batch_norm", "attention", "scalar_tensor")


@dataclass
class Choice:
    """One choice: the operation, the floating values it saw, and what it gave."""

    name: str
    seen: list[Tensor]
    out: Any


@dataclass
class Choices:
    """All choices of one run, in order."""

    made: list[Choice] = field(default_factory=list)


def chooses(op: Op) -> bool:
    """Whether a recorded operation turns floating values into a choice."""
    return op.func is not None and _is_choice(short_name(op.func), (op.args, op.kwargs), op.out)


def _is_choice(name: str, args: object, out: object) -> bool:
    if name.removesuffix("_") not in ROUNDING:
        outs = out if isinstance(out, (list, tuple)) else (out,)
        if not any(_is_discrete(item) for item in outs) or any(part in name for part in INNOCENT):
            return False
    return any(True for _ in _floating(args))


def _is_discrete(item: object) -> bool:
    if isinstance(item, Tensor):
        return not item.is_floating_point() and not item.is_complex()
    return item is not None and not isinstance(item, (list, tuple))


def _floating(args: Any) -> Iterator[Tensor]:
    """The floating tensors in nested arguments."""
    for item in args.values() if isinstance(args, dict) else args:
        if isinstance(item, Tensor):
            if item.is_floating_point():
                yield item
        elif isinstance(item, (list, tuple, dict)):
            yield from _floating(item)


class Noting(TorchDispatchMode):
    """Notes every choice that is made while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.choices = Choices()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and keep what a choice saw and gave."""
        kwargs = kwargs or {}
        out, name = func(*args, **kwargs), short_name(func)
        if _is_choice(name, (args, kwargs), out):
            self.choices.made.append(Choice(name, _copied(list(_floating((args, kwargs)))), _copied(out)))
        return out


class Imposing(TorchDispatchMode):
    """Makes the choices of another run again, and notes the values that they would have been made from here."""

    def __init__(self, choices: Choices) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.choices = choices
        self.seen: list[list[Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; where it chooses, give what was chosen before."""
        kwargs = kwargs or {}
        out, name = func(*args, **kwargs), short_name(func)
        if not _is_choice(name, (args, kwargs), out):
            return out
        number = len(self.seen)
        if number >= len(self.choices.made) or self.choices.made[number].name != name:
            message = f"the two models take different paths: choice {number} is made by {name}"
            raise VerificationError(message)
        self.seen.append(_copied(list(_floating((args, kwargs)))))
        return self._impose(func, args, kwargs, out, self.choices.made[number].out)

    def _impose(self, func: Any, args: Any, kwargs: Any, out: Any, chosen: Any) -> Any:
        if not isinstance(out, Tensor) and not isinstance(out, (list, tuple)):
            return chosen
        outs, before = ([out], [chosen]) if isinstance(out, Tensor) else (list(out), list(chosen))
        if any(isinstance(a, Tensor) and a.shape != b.shape for a, b in zip(outs, before, strict=True)):
            sized_by_values = torch.Tag.dynamic_output_shape in func.tags or "nms" in func._schema.name
            return chosen if sized_by_values else out
        if is_mutable(func) and isinstance(out, Tensor):
            return out.copy_(chosen)
        if isinstance(out, Tensor):
            return chosen.clone()
        picks = [b for b in before if isinstance(b, Tensor) and b.dtype == torch.int64]
        if short_name(func) in PICKING and len(outs) == 2 and picks:
            outs = [_gather(args[0], before[1], outs[0], _axis(func, args, kwargs)), before[1].clone()]
        return type(out)(outs) if isinstance(out, list) else tuple(outs)

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """What each choice saw in the other run and in this one, where the shapes agree (cut channels may differ)."""
        return [
            (a, b)
            for choice, seen in zip(self.choices.made, self.seen, strict=True)
            for a, b in zip(choice.seen, seen, strict=True)
            if a.shape == b.shape
        ]


def _copied(out: object) -> Any:
    if isinstance(out, Tensor):
        return out.detach().clone()
    if isinstance(out, (list, tuple)):
        return [_copied(item) for item in out]
    return out


def _axis(func: Any, args: Any, kwargs: Any) -> int:
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == "dim":
            axis = args[position] if position < len(args) else kwargs.get("dim", argument.default_value)
            return int(axis if axis is not None else -1)
    return -1


def _gather(source: Tensor, index: Tensor, like: Tensor, axis: int) -> Tensor:
    """The values at the places that were picked."""
    if index.dim() < source.dim():
        return source.gather(axis, index.unsqueeze(axis)).squeeze(axis)
    return source.gather(axis, index) if source.dim() else like
