"""Other paths through a model's code: inputs of another size or batch may take branches that no example has taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from pcshrink.errors import TraceError
from pcshrink.graph.examples import others_like
from pcshrink.graph.model import describe, named_tensors
from pcshrink.graph.record import Graph, Op, operands
from pcshrink.proof.survey import Survey

Step = tuple[str, ...]
Path = list[Step]


def path_of(model: nn.Module, graph: Graph) -> Path:
    """Every operation that ran, with the module it ran in and the parameters it used."""
    names = _names(model)
    return [_step(op, names) for op in graph.ops if op.func is not None]


def _names(model: nn.Module) -> dict[int, str]:
    return {id(tensor): name for name, tensor in named_tensors(model).items()}


def _step(op: Op, names: Mapping[int, str]) -> Step:
    used = [names[id(t)] for t in operands(op) if id(t) in names]
    return (op.module, op.func._schema.name, *used)


class _Trail(Graph):
    """A recording of the path alone: tensors that nobody holds give their memory to those that come after them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names, self.path = _names(model), Path()

    def add(self, op: Op) -> None:
        """Keep what the path says of an operation."""
        if op.func is not None:
            self.path.append(_step(op, self.names))


def _path_on(survey: Survey, example_input: object) -> Path | None:
    """What runs on an input; ``None`` where the model does not take it."""
    try:
        trail = survey.record(example_input, _Trail, on_copy=True)
    except TraceError:
        return None
    return trail.path


def unproven_paths(
    survey: Survey, examples: list[object], paths: list[Path], fails: Callable[[Any], str | None]
) -> list[str]:
    """What happens on other inputs where the code takes another path than on all examples, and the cut is not exact.

    Args:
        survey: Runs the model on other inputs.
        examples: The inputs that were proven.
        paths: The operations that run on each of them.
        fails: Tries the cut on an input and gives the reason of the failure.
    """
    known, notes = list(paths), []
    for example in examples:
        for other in others_like(example):
            path = _path_on(survey, other)
            if path is None:
                continue  # the model does not take it, so nobody will be surprised
            if path not in known and (reason := fails(other)) is not None:
                notes.append(
                    f"on inputs like {describe(other)} the code takes another path than on the example, and there the "
                    f"cut is not exact: {reason}. Pass one of them as well, attach_(model, [example, another]), if "
                    "the model is to run on them."
                )
            known.append(path)
            break  # the second try is for models that take only one size
    return notes
