"""Apply a plan: a new, smaller model, proven equal to the masked one before it is handed out."""

from __future__ import annotations

import functools
from typing import Literal

from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.graph.examples import examples_of
from pcshrink.graph.model import check_finite, unwrap
from pcshrink.proof.verify import check
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.fold import fold_gates_
from pcshrink.surgery.mask import masked
from pcshrink.surgery.plan import PrunePlan


def compact(
    model: nn.Module, plan: PrunePlan, example_input: object, gates: Literal["keep", "fold"] = "keep"
) -> nn.Module:
    """Cut everything a plan removes out of a copy of the model.

    Args:
        model: The model the plan was made for, with or without its gates; it is left untouched.
        plan: What stays.
        example_input: A tensor, or a tuple of arguments, for the proof; a list of such examples proves it on all.
        gates: "keep" the gates, or "fold" what they are as constants into the layers so that none is left.
            Gates that still depend on the input lose that: ``shrinker.settle`` them before, or train on after it.

    Returns:
        A new, ordinary, smaller model whose output equals that of the masked model.

    Raises:
        PlanMismatchError: The plan belongs to another model.
        TraceError: The model does not run on the example input.
        VerificationError: The compact model does not agree with the masked one, or the model holds numbers that are
            not finite.
    """
    if gates not in ("keep", "fold"):
        message = f'gates must be "keep" or "fold", got {gates!r}'
        raise ConfigError(message)
    base = unwrap(model)
    check_finite(base)
    small = apply_plan(base, plan)
    if gates == "fold":
        fold_gates_(small)
    around = functools.partial(masked, base, plan, constant=gates == "fold")
    for example in examples_of(base, example_input):
        check(base, small, example, ("the masked model", "the compact model"), around)
    return small
