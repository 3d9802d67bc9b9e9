"""Other paths through a model's code: inputs of another size or batch may take branches that no example has taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pcshrink.graph.examples import others_like
from pcshrink.graph.model import describe, evaluation, run


class _Path(TorchDispatchMode):
    """The names of all operations that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **kwargs or {})


def path_of(model: nn.Module, example_input: Any) -> list[str] | None:
    """What runs on an input, as names of operations; ``None`` where the model does not take it."""
    try:
        with evaluation(model), _Path() as path:
            run(model, example_input)
    except Exception:
        return None
    names: list[str] = path.names
    return names


def unproven_paths(
    model: nn.Module, examples: list[Any], paths: list[list[str]], fails: Callable[[Any], str | None]
) -> list[str]:
    """What happens on other inputs where the code takes another path than on all examples, and the cut is not exact.

    Args:
        model: A copy that may change: some models keep what depends on the size of the newest input.
        examples: The inputs that were proven.
        paths: The operations that run on each of them.
        fails: Tries the cut on an input and gives the reason of the failure.
    """
    known, notes = list(paths), []
    for example in examples:
        for other in others_like(example):
            path = path_of(model, other)
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
