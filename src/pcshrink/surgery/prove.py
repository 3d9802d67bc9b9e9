"""Prove groups on a copy of the user's own model before any training: zero some channels, cut them out, compare."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from pcshrink.errors import TraceError, VerificationError
from pcshrink.surgery.channels import Flags
from pcshrink.surgery.compact import apply_plan, masked
from pcshrink.surgery.coupling import ChannelGroup, Coupling
from pcshrink.surgery.graph import describe
from pcshrink.surgery.plan import gate_specs, make_plan
from pcshrink.surgery.verify import compare, outputs_of


def prove(model: nn.Module, coupling: Coupling, example_input: Any) -> Coupling:
    """Try every group; those that fail are left out, with the reason.

    All groups are cut at once first. Only when that fails, halves are tried until the culprits are alone.
    """
    if not coupling.groups:
        return coupling
    trial = _trial_copy(model, example_input)
    failures = _failures(trial, coupling, list(coupling.groups), example_input)
    if failures:
        _check_repeats(trial, example_input)
    for names, reason in failures:
        coupling = coupling.without(names, reason)
    return coupling


def _failures(
    model: nn.Module, coupling: Coupling, groups: list[ChannelGroup], example_input: Any
) -> list[tuple[list[str], str]]:
    reason = _trial(model, coupling, groups, example_input)
    if reason is None:
        return []
    if len(groups) == 1:
        return [([groups[0].name], f"its proof failed: {reason}")]
    half = len(groups) // 2
    left = _failures(model, coupling, groups[:half], example_input)
    right = _failures(model, coupling, groups[half:], example_input)
    if left or right:
        bad = {n for names, _ in (*left, *right) for n in names}
        rest = [g for g in groups if g.name not in bad]
        if not rest or _trial(model, coupling, rest, example_input) is None:
            return [*left, *right]
        return [*left, *right, ([g.name for g in rest], f"its proof failed together with others: {reason}")]
    return [([g.name for g in groups], f"its proof failed together with others: {reason}")]


def _trial(model: nn.Module, coupling: Coupling, groups: list[ChannelGroup], example_input: Any) -> str | None:
    """Cut some of the channels of these groups, then most of them; the reason of the failure, or None.

    The second cut goes below half, where numbers written into the code (``y[:, :8]``) can no longer fit.
    """
    shapes = {n: tuple(t.shape) for n, t in (*model.named_parameters(), *model.named_buffers())}
    gates = gate_specs(coupling, reduction=4, norm=False)
    for seed, share in enumerate((2 / 3, 1 / 5)):
        plan = make_plan(coupling, shapes, gates, _keep_some(groups, share, seed))
        try:
            small = apply_plan(model, plan)
            with masked(model, plan):
                expected = outputs_of(model, example_input, "the masked copy")
            compare(expected, outputs_of(small, example_input, "the compact copy"), "masked and compact copy")
        except VerificationError as error:
            return str(error)
    return None


def _keep_some(groups: list[ChannelGroup], share: float, seed: int) -> dict[str, Flags]:
    """Random channels of every group: about this share, but one less than all and, where that goes, two."""
    generator, keep = np.random.default_rng(seed), {}
    for group in groups:
        kept = min(max(round(share * group.channels), 2), max(group.channels - 1, 1))
        keep[group.name] = np.isin(np.arange(group.channels), generator.permutation(group.channels)[:kept])
    return keep


def _trial_copy(model: nn.Module, example_input: Any) -> nn.Module:
    """A copy on which nothing can hide: constants such as zero-initialised norms get random values."""
    trial = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in trial.parameters():
            _scatter(tensor, generator)
        for name, buffer in trial.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                _scatter(buffer, generator)
    first = outputs_of(trial, example_input, "the reference model")
    if all(bool(t.isfinite().all()) for t in first if t.is_floating_point()):
        return trial
    return copy.deepcopy(model)


def _check_repeats(model: nn.Module, example_input: Any) -> None:
    """A proof that fails means nothing if the model never gives the same output twice."""
    first, second = (outputs_of(model, example_input, "the reference model") for _ in range(2))
    try:
        compare(first, second, "two runs of the same model")
    except VerificationError as error:
        message = (
            f"the model does not repeat itself on {describe(example_input)}, so nothing can be proven: {error}. "
            "Make its evaluation pass deterministic, or set prove=False."
        )
        raise TraceError(message) from error


def _scatter(tensor: torch.Tensor, generator: torch.Generator) -> None:
    if tensor.numel() < 2 or not tensor.is_floating_point() or tensor.min() != tensor.max():
        return
    noise = torch.rand(tensor.shape, generator=generator).to(tensor) - 0.5
    tensor.add_(noise if tensor.ndim < 2 else noise / tensor[0].numel() ** 0.5)
