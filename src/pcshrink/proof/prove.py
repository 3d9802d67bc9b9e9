"""Prove groups on a copy of the user's own model before any training: zero some channels, cut them out, compare."""

from __future__ import annotations

import functools
import logging
import time
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from pcshrink.coupling.groups import ChannelGroup, Coupling
from pcshrink.coupling.units import Flags
from pcshrink.errors import TraceError, VerificationError
from pcshrink.graph.copies import duplicate, shared_parameters
from pcshrink.graph.model import describe, named_tensors
from pcshrink.proof.paths import Path, unproven_paths
from pcshrink.proof.survey import Survey
from pcshrink.proof.verify import check, compare, outputs_of
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.mask import masked
from pcshrink.surgery.plan import gate_sites, make_plan

MOST_TRIALS = 100  # a trial costs two forward passes
LARGE = 4096  # from here on looking at two numbers first is quicker
log = logging.getLogger(__name__)


def prove(
    model: nn.Module, coupling: Coupling, examples: list[object], paths: list[Path], survey: Survey, *, choosing: bool
) -> Coupling:
    """Try every group; those that fail are left out, with the reason.

    All groups are cut at once first. Only when that fails, parts are tried until the culprits are alone; groups not
    cleared after a hundred trials stay whole.

    Args:
        model: It is copied, so it stays as it is.
        coupling: The groups.
        examples: The inputs to prove it on, each a tensor, a tuple or a dict of arguments.
        paths: The operations that run on each of them.
        survey: Runs copies of the model on other inputs.
        choosing: The model sorts, thresholds or the like, so its outputs alone say little.

    Returns:
        The groups that can be cut, with a note for every path of the code that was seen but is not proven.
    """
    if not coupling.groups:
        return coupling
    proof = _Proof(model, coupling, examples, choosing)
    failures = proof.failures(list(coupling.groups))
    if failures:
        _check_repeats(proof.model, examples[0])
    for names, reason in failures:
        coupling = coupling.without(names, reason)
    if coupling.groups:
        if proof.model is model:
            proof.model = duplicate(model)  # other inputs may leave traces
        notes = unproven_paths(survey, examples, paths, functools.partial(proof.fails_on, coupling.groups))
        coupling = replace(coupling, notes=tuple(notes))
    return coupling


class _Proof:
    """Tries cuts on a copy of a model in which no tensor is constant, so that every wrong cut shows."""

    def __init__(self, model: nn.Module, coupling: Coupling, examples: list[object], choosing: bool) -> None:
        self.original, self.coupling, self.examples, self.choosing = model, coupling, examples, choosing
        self.model = _scattered(model)
        self.shapes = {n: tuple(t.shape) for n, t in named_tensors(model).items()}
        self.gates = gate_sites(coupling)
        self.kinds = {group.name: self._kind(group) for group in coupling.groups}
        self.trials = 0
        self.seen: dict[frozenset[str], str | None] = {}

    def failures(self, groups: list[ChannelGroup]) -> list[tuple[list[str], str]]:
        """The groups that cannot be cut, with the reason."""
        names = [g.name for g in groups]
        if self.trials >= MOST_TRIALS:
            return [(names, f"not proven: {MOST_TRIALS} trials were not enough to find what else fails")]
        reason = self.trial(groups)
        if reason is None:
            return []
        if len(groups) == 1:
            return [(names, f"its proof failed: {reason}")]
        if self._alike(groups) and all(self.trial([groups[i]]) for i in (0, len(groups) // 2, -1)):
            return [(names, f"the proof failed for layers of this kind: {reason}")]
        left, right = (self.failures(part) for part in self._parts(groups))
        together = f"its proof failed together with others: {reason}"
        if left or right:
            bad = {n for failed, _ in (*left, *right) for n in failed}
            rest = [g for g in groups if g.name not in bad]
            if not rest or self.trial(rest) is None:
                return [*left, *right]
            return [*left, *right, ([g.name for g in rest], together)]
        return [(names, together)]

    def _kind(self, group: ChannelGroup) -> tuple[str, str]:
        """The class whose code a group runs through, and the layer's place in it."""
        site = group.sites[0]
        name = site.module if site.at_input or not group.writers else group.writers[0]
        place: list[str] = []
        while name:
            name, _, leaf = name.rpartition(".")
            place.append("*" if leaf.isdecimal() else leaf)
            if not isinstance(owner := self.model.get_submodule(name), (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
                return f"{type(owner).__module__}.{type(owner).__qualname__}", ".".join(reversed(place))
        return "", ""

    def _alike(self, groups: list[ChannelGroup]) -> bool:
        """Many layers of one kind stand or fall together: their code is the same everywhere."""
        kinds = {self.kinds[g.name] for g in groups}
        return len(groups) > 3 and len(kinds) == 1 and kinds != {("", "")}

    def _parts(self, groups: list[ChannelGroup]) -> tuple[list[ChannelGroup], list[ChannelGroup]]:
        """Two parts: the most frequent kind and the rest where there are several of it, else halves."""
        kinds = [self.kinds[g.name] for g in groups]
        chosen = max(kinds, key=kinds.count)
        if 3 < kinds.count(chosen) < len(groups):
            same = [g for g, kind in zip(groups, kinds, strict=True) if kind == chosen]
            return same, [g for g, kind in zip(groups, kinds, strict=True) if kind != chosen]
        return groups[: len(groups) // 2], groups[len(groups) // 2 :]

    def trial(self, groups: list[ChannelGroup]) -> str | None:
        """Cut most of the channels of these groups; the reason of the failure, or None."""
        names = frozenset(g.name for g in groups)
        if names not in self.seen:
            self.seen[names] = self._try(groups)
        return self.seen[names]

    def _try(self, groups: list[ChannelGroup]) -> str | None:
        """Cut below half, where numbers written into the code (``y[:, :8]``) can no longer fit, and compare."""
        started, self.trials = time.perf_counter(), self.trials + 1
        try:
            self._compare(groups, self.examples)
        except ArithmeticError:
            if self.model is self.original:
                return "the model gives values that are not finite"
            self.model, self.seen = self.original, {}
            return self._try(groups)
        except VerificationError as error:
            return str(error)
        finally:
            seconds = time.perf_counter() - started
            log.info("proof: trial %d, %d groups at once, %.1f s", self.trials, len(groups), seconds)
        return None

    def fails_on(self, groups: list[ChannelGroup], example_input: object) -> str | None:
        """Why the cut of these groups is not exact on another input, or None."""
        try:
            self._compare(groups, [example_input])
        except ArithmeticError:
            return "the model gives values that are not finite"
        except VerificationError as error:
            return str(error)
        return None

    def _compare(self, groups: list[ChannelGroup], examples: list[object]) -> None:
        plan = make_plan(self.coupling, self.shapes, self.gates, _keep_some(groups))
        around, who = functools.partial(masked, self.model, plan), ("the masked copy", "the compact copy")
        small = apply_plan(self.model, plan)
        for example in examples:
            check(self.model, small, example, who, around, users_own=False, choosing=self.choosing, finite=True)


def _keep_some(groups: list[ChannelGroup]) -> dict[str, Flags]:
    """Random channels of every group: about a third, at least two of four or more, and never all."""
    generator, keep = np.random.default_rng(0), {}
    for group in groups:
        least = 1 if group.channels < 4 else 2  # a single channel is lost to code that squeezes
        kept = min(max(round(group.channels / 3), least), max(group.channels - 1, 1))
        keep[group.name] = np.isin(np.arange(group.channels), generator.permutation(group.channels)[:kept])
    return keep


def _scattered(model: nn.Module) -> nn.Module:
    """A copy whose constant tensors, such as zero-initialised norms, get random values, so that wrong cuts show.

    The other parameters share the memory of the model's own: a proof only reads them, and they are the most of it.
    """
    shared = {key: p for key, p in shared_parameters(model).items() if not _is_constant(p)}
    trial = duplicate(model, dict(shared))
    kept, generator = {id(p) for p in shared.values()}, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in trial.parameters():
            if id(tensor) not in kept and (type(tensor) is nn.Parameter or _is_constant(tensor)):
                _scatter(tensor, generator)
        for name, buffer in trial.named_buffers():
            if name.rpartition(".")[2] in ("running_mean", "running_var", "weight", "bias") and _is_constant(buffer):
                _scatter(buffer, generator)
    return trial


def _check_repeats(model: nn.Module, example_input: object) -> None:
    """A proof that fails means nothing if the model never gives the same output twice."""
    first, second = (outputs_of(model, example_input, "the model", users_own=True) for _ in range(2))
    if not first:
        message = (
            f"the model returns no tensor on {describe(example_input)}, so nothing can be proven. Let it return what "
            "its loss is made of, attach to a part of it that does, or set prove=False."
        )
        raise TraceError(message)
    try:
        compare(first, second, "two runs of the same model")
    except VerificationError as error:
        message = (
            f"the model does not repeat itself on {describe(example_input)}, so nothing can be proven: {error}. "
            "Make its evaluation pass deterministic, or set prove=False."
        )
        raise TraceError(message) from error


def _is_constant(tensor: torch.Tensor) -> bool:
    """Whether a floating tensor holds one number many times."""
    if tensor.numel() < 2 or not tensor.is_floating_point():
        return False
    if tensor.numel() > LARGE and bool(tensor[(0,) * tensor.ndim] != tensor[(-1,) * tensor.ndim]):
        return False
    low, high = tensor.aminmax()
    return bool(low == high)


def _scatter(tensor: torch.Tensor, generator: torch.Generator) -> None:
    noise = torch.rand(tensor.shape, generator=generator).to(tensor) - 0.5
    tensor.add_(noise if tensor.ndim < 2 else noise / tensor[0].numel() ** 0.5)
