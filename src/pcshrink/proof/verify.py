"""Compare two models on the same input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pcshrink.errors import TraceError, VerificationError
from pcshrink.graph.copies import duplicate
from pcshrink.graph.examples import examples_of
from pcshrink.graph.model import describe, evaluation, first_line, run, tensors, unwrap
from pcshrink.proof.choices import Imposing, Noting

# Largest difference allowed, relative to the largest output. Measured rounding is 1e-15 and 5e-7.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
TOLERANCE_NARROW = 3e-2  # float16 and bfloat16
ROUNDED = 1e-2  # up to here a difference in float32 is looked at again in float64
BEFORE_CHOICES = 100  # a sort or threshold may see small differences of large numbers, such as the widths of boxes


def verify(model: nn.Module, small: nn.Module, example_input: object) -> float:
    """Run both models in evaluation mode and return the largest relative difference of their outputs.

    Where float32 alone may be the reason of a difference, copies in float64 decide.
    Where outputs are empty or disagree and the models choose (a detector keeps the best boxes), the reference's choices
    are imposed on the other model, and the values before every choice are compared as well.

    Args:
        model: The reference, for example the masked model.
        small: The model that must agree with it.
        example_input: A tensor, or a tuple of arguments; or a list of such examples.

    Raises:
        TraceError: The reference does not run on this input.
        VerificationError: They differ by more than rounding (float32: 1e-5 of the largest output, or 1e-12 in
            float64; float64: 1e-12).
    """
    base, other, who = unwrap(model), unwrap(small), ("the reference model", "the other model")
    return max(check(base, other, example, who) for example in examples_of(base, example_input))


def check(
    model: nn.Module,
    small: nn.Module,
    example_input: object,
    who: tuple[str, str],
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    *,
    users_own: bool = True,
    choosing: bool = False,
    finite: bool = False,
) -> float:
    """The largest relative difference of two models, or an error.

    Args:
        model: The reference; ``around`` is entered while it runs.
        small: The model that must agree with it.
        example_input: A tensor, or a tuple of arguments.
        who: What both are called in messages.
        around: Makes a context for the reference, for example one that masks it.
        users_own: The reference is the user's own model; see ``outputs_of``.
        choosing: The models are known to choose, so outputs alone need not be tried.
        finite: Raise ArithmeticError where the reference gives infinite values, which would prove nothing.
    """
    one, other = (name.removeprefix("the ") for name in who)
    what = f"{one.rpartition(' ')[0]} and {other}"
    if not choosing:
        with around():
            expected = outputs_of(model, example_input, who[0], users_own=users_own)
        _check_finite(expected, finite)
        got = outputs_of(small, example_input, who[1])
        if all(t.numel() for t in expected) and difference(expected, got) <= tolerance(expected):
            return compare(expected, got, what)
    with around(), Noting() as noting:
        expected = outputs_of(model, example_input, who[0], users_own=users_own)
    _check_finite(expected, finite)
    if not noting.choices.made and not choosing:
        closer = _in_double(model, small, example_input, who, around) if _may_be_rounding(expected, got) else None
        return compare(expected, got, what) if closer is None else closer
    with Imposing(noting.choices) as imposing:
        imposed = outputs_of(small, example_input, who[1])
    worst = compare(expected, imposed, what)
    before = max((difference([a], [b]) for a, b in imposing.pairs()), default=0.0)
    if before > BEFORE_CHOICES * tolerance(expected):
        message = f"{what} do not agree: largest relative difference {before:.3g} before a choice such as sorting"
        raise VerificationError(message)
    return worst if any(t.numel() for t in expected) else before


def _may_be_rounding(expected: list[Tensor], got: list[Tensor]) -> bool:
    """Whether a difference in float32 may be nothing but rounding, as in networks whose values grow layer by layer."""
    return tolerance(expected) == TOLERANCE[torch.float32] and difference(expected, got) < ROUNDED


def _in_double(
    model: nn.Module,
    small: nn.Module,
    example_input: object,
    who: tuple[str, str],
    around: Callable[[], contextlib.AbstractContextManager[None]],
) -> float | None:
    """The difference of copies in float64; ``None`` where they do not run in it, or differ there as well."""
    wide_input = tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, example_input)
    try:
        with around():
            expected = outputs_of(duplicate(model).double(), wide_input, who[0])
        got = outputs_of(duplicate(small).double(), wide_input, who[1])
    except (RuntimeError, TypeError, ValueError):
        return None
    worst = difference(expected, got)
    return worst if worst <= TOLERANCE[torch.float64] else None


def _check_finite(outputs: list[Tensor], wanted: bool) -> None:
    if wanted and not all(bool(t.isfinite().all()) for t in outputs if t.is_floating_point()):
        raise ArithmeticError


def outputs_of(model: nn.Module, example_input: object, who: str, *, users_own: bool = False) -> list[Tensor]:
    """All output tensors of an evaluation pass with a fixed random state.

    Args:
        model: What runs.
        example_input: A tensor, or a tuple of arguments.
        who: What the model is called in messages.
        users_own: It is the model that the user passed, so if it does not run, the input is wrong.

    Raises:
        TraceError: The user's own model does not run.
        VerificationError: A model that was made here does not run.
    """
    try:
        with evaluation(model):
            return [t.detach() for t in tensors(run(model, example_input))]
    except Exception as error:
        message = f"{who} does not run on {describe(example_input)}: {type(error).__name__}: {first_line(error)}"
        kind = TraceError if users_own else VerificationError
        raise kind(message) from error


def difference(expected: list[Tensor], got: list[Tensor]) -> float:
    """The largest difference relative to the largest expected value; infinite where shapes or finiteness differ."""
    if len(expected) != len(got) or any(a.shape != b.shape for a, b in zip(expected, got, strict=True)):
        return float("inf")
    worst = 0.0
    for a, b in zip(expected, got, strict=True):
        if not a.numel():
            continue
        wide_a, wide_b = (t.to(torch.float64) for t in (a, b))
        if not torch.equal(wide_a.isfinite(), wide_b.isfinite()):
            return float("inf")
        wide_a, wide_b = (t.nan_to_num(0.0, 0.0, 0.0) for t in (wide_a, wide_b))
        scale = float(wide_a.abs().max()) or 1.0
        worst = max(worst, float((wide_a - wide_b).abs().max()) / scale)
    return worst


def tolerance(outputs: list[Tensor]) -> float:
    """The gate for these outputs, by the narrowest floating type among them."""
    floating = [t.dtype for t in outputs if t.is_floating_point()]
    return max((TOLERANCE.get(d, TOLERANCE_NARROW) for d in floating), default=TOLERANCE[torch.float32])


def compare(expected: list[Tensor], got: list[Tensor], what: str) -> float:
    """The largest relative difference, or an error that says by how much it is too large."""
    worst, allowed = difference(expected, got), tolerance(expected)
    if not expected:
        message = f"{what} return no tensor that could be compared"
        raise VerificationError(message)
    if worst > allowed:
        shapes = [tuple(t.shape) for t in expected], [tuple(t.shape) for t in got]
        message = (
            f"{what} do not agree: largest relative difference {worst:.3g}, allowed {allowed:.0e} "
            f"(outputs {shapes[0]} and {shapes[1]})"
        )
        raise VerificationError(message)
    return worst
