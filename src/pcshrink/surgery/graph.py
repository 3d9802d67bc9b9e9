"""Record one concrete forward pass as a flat list of ATen operations.

A dispatch-mode recording sees every operation that really runs, with the parameters as the very objects the
model holds. It needs no symbolic tracing, so data-dependent control flow, custom modules and scripted parts are all
recorded alike, at the price of one forward pass.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from pcshrink.errors import TraceError


@dataclass
class Op:
    """One operation, or one module boundary (``func is None``: entering; ``leaving``: its output is known)."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    module: str
    leaving: bool = False


@dataclass
class Graph:
    """The recording: operations in order, and what the model returned. Holds all tensors alive, so ids are unique."""

    ops: list[Op] = field(default_factory=list)
    outputs: Any = None
    called: set[str] = field(default_factory=set)


def call_arguments(example_input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn what a user passes as ``example_input`` into positional and keyword arguments."""
    if isinstance(example_input, dict):
        return (), dict(example_input)
    if isinstance(example_input, tuple):
        return example_input, {}
    return (example_input,), {}


def run(model: nn.Module, example_input: Any) -> Any:
    """Call ``model`` on an example input of any accepted form."""
    args, kwargs = call_arguments(example_input)
    return model(*args, **kwargs)


def unwrap(model: nn.Module) -> nn.Module:
    """Give the user's own module behind ``torch.compile``, DataParallel or DistributedDataParallel."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, wrappers):
            model = cast(nn.Module, model.module)
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = cast(nn.Module, model._orig_mod)
        else:
            return model


def duplicate(model: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A deep copy. Modules carry a dozen empty dictionaries each; making new ones here takes most of the time away."""
    memo = {} if memo is None else memo
    for module in model.modules():
        for value in vars(module).values():
            if type(value) in (dict, OrderedDict) and not value:
                memo[id(value)] = type(value)()
    return copy.deepcopy(model, memo)


@contextlib.contextmanager
def evaluation(model: nn.Module, *, training: bool = False) -> Iterator[None]:
    """Evaluation mode, no gradients, eager, fixed random state; everything is put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    devices = [p.device.index for p in model.parameters() if p.device.type == "cuda"]
    fastpath = torch.backends.mha.get_fastpath_enabled()
    model.train(training)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.no_grad(),
            torch.random.fork_rng(sorted(set(devices))),
            torch.compiler.set_stance("force_eager"),
            torch.autocast("cpu", enabled=False),
        ):
            torch.manual_seed(0)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, mode in modes:
            module.training = mode


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: Graph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = graph
        self.stack: list[str] = [""]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.graph.ops.append(Op(func, args, kwargs, out, self.stack[-1]))
        return out

    def enter(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.graph.called.add(name)
            self.stack.append(name)
            self.graph.ops.append(Op(None, args, kwargs, None, name))

        return hook

    def leave(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            self.graph.ops.append(Op(None, args, {}, out, name, leaving=True))
            if self.stack[-1] == name:
                self.stack.pop()

        return hook


def record(model: nn.Module, example_input: Any, *, training: bool = False) -> Graph:
    """Run ``model`` once and return what happened.

    Args:
        model: Any module. Its mode, gradients and random state are left as they were.
        example_input: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        training: Record the training-mode pass instead; the caller passes a copy then, since norms update buffers.

    Raises:
        TraceError: The model does not run on this input.
    """
    graph = Graph()
    recorder = _Recorder(graph)
    handles = []
    for name, module in model.named_modules():
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


def first_line(error: BaseException) -> str:
    """An error's message without the pages that some of torch's have."""
    return str(error).strip().split("\n", 1)[0].rstrip(".:")


def tensors(tree: Any) -> list[Tensor]:
    """All tensors in a nested structure of lists, tuples, dicts and model-output classes."""
    found: list[Tensor] = []
    for leaf in tree_iter(tree):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (nn.Module, type)):
            found += [t for t in vars(leaf).values() if isinstance(t, Tensor)]
    return found


def describe(example_input: Any) -> str:
    """Shapes and types of an example input, for messages."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{tuple(leaf.shape)}"
        return type(leaf).__name__

    return str(tree_map(one, example_input)).replace("'", "")
