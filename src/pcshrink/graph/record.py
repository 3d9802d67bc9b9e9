"""Record one concrete forward pass as a flat list of ATen operations.

A dispatch-mode recording sees every operation that really runs, with the parameters as the very objects the
model holds. It needs no symbolic tracing, so data-dependent control flow and custom modules are all
recorded alike, at the price of one forward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pcshrink.errors import TraceError
from pcshrink.graph.derived import weight_hooks
from pcshrink.graph.model import describe, evaluation, first_line, named_modules, run

Compute = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


@dataclass(slots=True)
class Op:
    """One operation, or one module boundary (``func is None``).

    Boundaries: ``hooks``, the module's own hooks run next; plain, it is entered, and ``out`` has the weights that its
    hooks computed; ``leaving``, its output is known.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    module: str
    leaving: bool = False
    hooks: bool = False


@functools.lru_cache(maxsize=1024)
def short_name(func: Any) -> str:
    """The name of an operation; asking its schema is slow."""
    return str(func._schema.name.split("::")[1])


@functools.lru_cache(maxsize=1024)
def is_mutable(func: Any) -> bool:
    """Whether an operation writes into its arguments."""
    return bool(func._schema.is_mutable)


def operands(op: Op) -> list[Tensor]:
    """All tensors among the arguments of an operation, lists of tensors included."""
    return operands_of(op.args, op.kwargs)


def operands_of(args: tuple[object, ...], kwargs: dict[str, object]) -> list[Tensor]:
    """All tensors among arguments, lists of tensors included."""
    given: list[Tensor] = []
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, Tensor):
            given.append(arg)
        elif isinstance(arg, (list, tuple)):
            given += [item for item in arg if isinstance(item, Tensor)]
    return given


@dataclass
class Graph:
    """The recording: operations in order, and what the model returned. Holds all tensors alive, so ids are unique."""

    ops: list[Op] = field(default_factory=list)
    outputs: Any = None
    called: set[str] = field(default_factory=set)
    training: bool = False

    def add(self, op: Op) -> None:
        """What happened next; another kind of recording may keep less of it."""
        self.ops.append(op)


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: Graph, compute: Compute) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.compute = graph, compute
        self.stack: list[str] = [""]

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = self.compute(func, args, kwargs)
        self.graph.add(Op(func, args, kwargs, out, self.stack[-1]))
        return out

    def before(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[object, ...]) -> None:
            self.graph.add(Op(None, (), {}, None, name, hooks=True))

        return hook

    def enter(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            computed = {h.name: getattr(module, h.name) for h in weight_hooks(module)}
            self.graph.called.add(name)
            self.stack.append(name)
            self.graph.add(Op(None, args, kwargs, computed, name))

        return hook

    def leave(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[object, ...], out: object) -> None:
            self.graph.add(Op(None, args, {}, out, name, leaving=True))
            if self.stack[-1] == name:
                self.stack.pop()

        return hook


def compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation."""
    return func(*args, **kwargs)


def record(
    model: nn.Module,
    example_input: object,
    *,
    training: bool = False,
    into: Graph | None = None,
    compute: Compute = compute,
) -> Graph:
    """Run ``model`` once and return what happened.

    Args:
        model: Any module. Its mode, gradients and random state are left as they were.
        example_input: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        training: Record the training-mode pass instead; the caller passes a copy then, since norms update buffers.

        into: The recording to fill, for one that keeps less.
        compute: Runs the operations.

    Raises:
        TraceError: The model does not run on this input.
    """
    graph = Graph(training=training) if into is None else into
    recorder = _Recorder(graph, compute)
    handles = []
    for name, module in named_modules(model):
        if isinstance(module, torch.jit.ScriptModule):
            continue  # they take no hooks, so their operations count as those of the module around them
        if module._forward_pre_hooks:
            handles.append(module.register_forward_pre_hook(recorder.before(name), prepend=True))
        handles.append(module.register_forward_pre_hook(recorder.enter(name), with_kwargs=True))
        handles.append(module.register_forward_hook(recorder.leave(name)))
    try:
        with evaluation(model, training=training), recorder:
            graph.outputs = run(model, example_input)
    except Exception as error:
        where = recorder.stack[-1] or type(model).__name__
        message = (
            f"the model does not run on the example input ({describe(example_input)}): in {where!r}: "
            f"{type(error).__name__}: {first_line(error)}. Pass an input of the shape, type and device the model "
            "expects; several arguments go in a tuple."
        )
        raise TraceError(message) from error
    finally:
        for handle in handles:
            handle.remove()
    return graph
