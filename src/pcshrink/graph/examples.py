"""Example inputs: one or several, and others like them that may take another path through the code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pcshrink.errors import TraceError
from pcshrink.graph.model import describe, evaluation, run, tensors

STEP = 32  # most networks halve their maps up to five times, so other sizes are multiples of this


def examples_of(model: nn.Module, example_input: object) -> list[Any]:
    """The single examples in what a user passes.

    A list holds several examples, each a tensor, a tuple of positional or a dict of keyword arguments; everything
    else is one. A list of tensors that the model takes as its one argument, as detectors do, is one example as well.

    Raises:
        TraceError: The list is empty, or an example is.
    """
    found = _separate(model, example_input)
    for example in found:
        check_values(example)
    return found


def check_values(example_input: object) -> None:
    """Refuse an example such as an empty batch: it costs nothing, and every two models agree on it.

    Raises:
        TraceError: None of its tensors holds a value.
    """
    inputs = tensors(example_input)
    if inputs and not any(tensor.numel() for tensor in inputs):
        message = f"the example input {describe(example_input)} holds no values; pass at least one sample"
        raise TraceError(message)


def _separate(model: nn.Module, example_input: object) -> list[Any]:
    if not isinstance(example_input, list):
        return [example_input]
    if not example_input:
        message = "the list of example inputs is empty; pass a tensor, a tuple of arguments, or a list of such examples"
        raise TraceError(message)
    if all(isinstance(item, Tensor) for item in example_input) and _takes_list(model, example_input):
        return [(example_input,)]
    return example_input


def check_runs(model: nn.Module, example_input: object) -> None:
    """Make sure that a model runs on an example input.

    Raises:
        TraceError: It does not, with the reason.
    """
    check_values(example_input)
    try:
        with evaluation(model):
            run(model, example_input)
    except Exception as error:  # a model may raise anything
        reason = " ".join(str(error).split())[:300]
        message = (
            f"{type(model).__name__} does not run on the example input: {type(error).__name__}: {reason}. Pass an "
            "input that model(example_input) accepts; several arguments as a tuple"
        )
        raise TraceError(message) from error


def _takes_list(model: nn.Module, items: list[Tensor]) -> bool:
    try:
        with evaluation(model):
            run(model, (items,))
    except Exception:  # a model may raise anything; it just does not take a list
        return False
    return True


def others_like(example_input: object) -> list[Any]:
    """Inputs of another size and batch, then only of another batch, that a model may or may not take."""
    inputs = tensors(example_input)
    if not inputs or inputs[0].ndim == 0:
        return []
    batch = inputs[0].shape[0]
    regrouped = tree_map(lambda leaf: _other_batch(leaf, batch), example_input)
    return [tree_map(_other_size, regrouped), regrouped]


def _other_batch(leaf: object, batch: int) -> Any:
    if not isinstance(leaf, Tensor) or leaf.ndim == 0 or leaf.shape[0] != batch:
        return leaf
    return leaf[:1] if batch > 1 else torch.cat([leaf, leaf])


def _other_size(leaf: object) -> Any:
    """Half of every length beyond batch and channels; twice for small pictures.

    Numbers of words only get fewer: an index beyond a table would end a whole CUDA process.
    """
    if not isinstance(leaf, Tensor):
        return leaf
    lengths = range(2, leaf.ndim) if leaf.is_floating_point() else range(1, leaf.ndim)
    may_grow = leaf.is_floating_point() and leaf.device.type == "cpu"
    for axis in lengths:
        half = leaf.shape[axis] // 2
        if half >= STEP:
            leaf = leaf.narrow(axis, 0, half // STEP * STEP)
        elif may_grow:
            leaf = torch.cat([leaf, leaf], dim=axis)
        elif half:
            leaf = leaf.narrow(axis, 0, half)
    return leaf
