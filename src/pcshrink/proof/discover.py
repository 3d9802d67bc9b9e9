"""Find out what can shrink in a model: record, couple, prove."""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import time
import warnings
from collections.abc import Iterable, Iterator

from torch import nn

from pcshrink.config import MethodConfig
from pcshrink.coupling.groups import Coupling, conclude
from pcshrink.coupling.units import Ledger
from pcshrink.coupling.walk import Walk
from pcshrink.errors import NoSitesError, ShrinkError, ShrinkWarning, TraceError
from pcshrink.graph.copies import duplicate
from pcshrink.graph.examples import examples_of
from pcshrink.graph.foreign import check_copies, check_ordinary, forget_compiled
from pcshrink.graph.model import first_line, named_modules
from pcshrink.graph.record import Graph, record
from pcshrink.proof.choices import chooses
from pcshrink.proof.paths import Path, path_of
from pcshrink.proof.prove import prove
from pcshrink.proof.survey import Survey
from pcshrink.surgery.attention import adapted
from pcshrink.surgery.gates import find_gates, remove_gates_

log = logging.getLogger(__name__)
NOT_UNDERSTOOD = "could not be analysed"
LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def discover(model: nn.Module, example_input: object, config: MethodConfig, *, reads_input: bool = True) -> Coupling:
    """The groups of a model that can shrink, proven unless the settings say otherwise.

    Args:
        model: Any module; it is left as it was.
        example_input: A tensor, a tuple or a dict of arguments, or a list of such examples: the groups hold for all.
        config: Which layers to leave alone, and whether to prove.
        reads_input: The gates read the mean input of their layers, so what that mean is taken over must stay.

    Raises:
        NoSitesError: No group is left, or a pattern matches nothing.
        TraceError: The model does not run on the example input.
    """
    check_ordinary(model)
    forget_compiled()
    if find_gates(model):  # shrinking goes on: look at the network without the gates it has already
        model = duplicate(model)
        remove_gates_(model)
    examples = examples_of(model, example_input)
    check_copies(model, examples[0])
    with adapted(model.modules()), _typed(model):
        survey = Survey(model)
        coupling, paths, choosing = _couple(model, examples, config, survey, reads_input=reads_input)
        if config.prove:
            coupling = prove(model, coupling, examples, paths, survey, choosing=choosing)
    for note in coupling.notes:
        warnings.warn(note, ShrinkWarning, stacklevel=3)
    if not coupling.groups:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(coupling.refused.items())[:8])
        message = f"nothing in this model can shrink. {reasons or 'It has no convolution or linear layer.'}"
        raise NoSitesError(message)
    return coupling


@contextlib.contextmanager
def _typed(model: nn.Module) -> Iterator[None]:
    """Whatever a model does that nobody thought of ends in an error that says so, with a way out."""
    try:
        yield
    except ShrinkError:
        raise
    except Exception as error:
        message = (
            f"{type(model).__name__} {NOT_UNDERSTOOD}: {type(error).__name__}: {first_line(error)}. Attach to the part "
            "of it that is to shrink (a submodule with an example of its own input), and please report the model."
        )
        raise TraceError(message) from error


def _couple(
    model: nn.Module, examples: list[object], config: MethodConfig, survey: Survey, *, reads_input: bool
) -> tuple[Coupling, list[Path], bool]:
    """The groups, the operations that run on each example, and whether the model makes choices that may hide much."""
    excluded = excluded_layers(model, config)
    walk = Walk(model, Ledger(), reads_input=reads_input)
    called, paths, choosing = set[str](), [], False
    for example in examples:
        started = time.perf_counter()
        graph = survey.record(example, lambda _: Graph())
        walk.adopt(survey.ran)
        log.info("recorded %d operations in %.1f s", len(graph.ops), time.perf_counter() - started)
        walk.follow(graph)
        called |= graph.called
        paths.append(path_of(survey.ran, graph))
        choosing = choosing or any(chooses(op) for op in graph.ops)
    idle = [n for n, m in named_modules(model) if isinstance(m, LAYERS) and n not in called]
    if idle:  # auxiliary heads and the like run in training mode only
        called |= _follow_training(model, walk, examples[0])
    touched = {name for path in paths for _, _, *parameters in path for name in parameters}
    return conclude(walk, called, touched, excluded), paths, choosing


def _follow_training(model: nn.Module, walk: Walk, example_input: object) -> set[str]:
    trial = duplicate(model)
    try:
        graph = record(trial, example_input, training=True)
    except TraceError:
        return set()  # the training pass wants other arguments; the idle layers are listed as not used
    walk.adopt(trial)
    walk.follow(graph)
    return graph.called


def excluded_layers(model: nn.Module, config: MethodConfig) -> dict[str, str]:
    """Module name -> reason, from the include, exclude and ratio patterns.

    Raises:
        NoSitesError: A pattern matches nothing.
    """
    layers = [n for n, m in named_modules(model) if isinstance(m, LAYERS)]
    excluded: dict[str, str] = {}
    for pattern in config.exclude:
        excluded |= dict.fromkeys(_matching(layers, pattern, "exclude"), f"excluded by {pattern!r}")
    wanted = {n for p in config.include for n in _matching(layers, p, "include")}
    if not isinstance(config.ratio, (int, float)):
        for pattern in config.ratio:
            _matching(layers, pattern, "ratio")
    if wanted:
        excluded |= {n: "not in include" for n in layers if n not in wanted}
    return excluded


def _matching(layers: Iterable[str], pattern: str, field: str) -> list[str]:
    names = list(layers)
    matching = fnmatch.filter(names, pattern)
    if not matching:
        some = ", ".join(names[:6])
        message = (
            f"{field}: the pattern {pattern!r} matches no convolution or linear layer; they are called {some}, ..."
        )
        raise NoSitesError(message)
    return matching
