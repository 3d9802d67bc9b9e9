"""Small helpers around models: calling, unwrapping, and a quiet evaluation mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map

from pcshrink.errors import ConfigError, VerificationError

CONV1D = "transformers.pytorch_utils.Conv1D"


def call_arguments(example_input: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn what a user passes as ``example_input`` into positional and keyword arguments."""
    if isinstance(example_input, dict):
        return (), dict(example_input)
    if isinstance(example_input, tuple):
        return example_input, {}
    return (example_input,), {}


def run(model: nn.Module, example_input: object) -> Any:
    """Call ``model`` on an example input of any accepted form."""
    args, kwargs = call_arguments(example_input)
    return model(*args, **kwargs)


def unwrap(model: nn.Module) -> nn.Module:
    """Give the user's own module behind ``torch.compile``, DataParallel or DistributedDataParallel.

    Raises:
        ConfigError: What was given is no module.
    """
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, wrappers):
            model = cast(nn.Module, model.module)
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = cast(nn.Module, model._orig_mod)
        elif isinstance(model, nn.Module):
            return model
        else:
            got = (
                f"the class {model.__name__}, not an object of it" if isinstance(model, type) else type(model).__name__
            )
            message = f"a model must be a torch.nn.Module, got {got}"
            raise ConfigError(message)


def is_linear(module: nn.Module | None) -> bool:
    """Whether a module is a linear layer, which reads and writes the last axis; GPT-2's is called Conv1D."""
    return isinstance(module, nn.Linear) or f"{type(module).__module__}.{type(module).__qualname__}" == CONV1D


def named_modules(model: nn.Module, *, every_name: bool = False) -> list[tuple[str, nn.Module]]:
    """As ``model.named_modules()``, which hands every module through one generator for each level above it.

    Args:
        model: Any module.
        every_name: A module that is held in several places is listed under each of its names, not under the first.
    """
    modules: list[tuple[str, nn.Module]] = []
    seen: set[int] = set()
    waiting = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if id(module) in seen and not every_name:
            continue
        seen.add(id(module))
        modules.append((name, module))
        if module._modules:  # most have none
            prefix = f"{name}." if name else ""
            waiting += [(prefix + key, child) for key, child in reversed(module._modules.items()) if child is not None]
    return modules


def named_tensors(model: nn.Module, *, every_name: bool = False) -> dict[str, Tensor]:
    """All parameters, then all buffers; each under its first name, or under every one."""
    modules = named_modules(model, every_name=every_name)
    named: dict[str, Tensor] = {}
    for table in ("_parameters", "_buffers"):
        seen: set[int] = set()
        for name, module in modules:
            for key, tensor in getattr(module, table).items():
                if tensor is not None and (every_name or id(tensor) not in seen):
                    seen.add(id(tensor))
                    named[f"{name}.{key}" if name else key] = tensor
    return named


def check_finite(model: nn.Module) -> None:
    """Refuse a network that holds numbers which are not finite; a buffer may be infinite, as masks are.

    Raises:
        VerificationError: It does; the message names the tensors.
    """
    numbers = {
        name: tensor.detach()
        for name, tensor in named_tensors(model).items()
        if tensor.is_floating_point() and tensor.element_size() > 1 and tensor.numel() and not tensor.is_meta
    }
    if _have_finite_sums(list(numbers.values())):
        return
    weights = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    bad = [name for name, tensor in numbers.items() if not _is_sound(tensor, may_be_infinite=name not in weights)]
    if bad:
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        message = (
            f"the network holds numbers that are not finite, in {', '.join(bad[:3])}{more}, so whatever it says is "
            "wrong. A batch that was not finite went through it, or the training diverged: go back to a state "
            "from before"
        )
        raise VerificationError(message)


def _have_finite_sums(tensors: list[Tensor]) -> bool:
    """Whether nothing can be wrong: what is not finite shows in a sum, at times also what is finite but large."""
    sums: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        sums.setdefault(tensor.device, []).append(tensor.sum().float())
    return all(bool(torch.stack(of_device).isfinite().all()) for of_device in sums.values())


def _is_sound(tensor: Tensor, *, may_be_infinite: bool) -> bool:
    """Whether its numbers are usable, seen by the two extremes, which NaN takes over; much faster than one by one."""
    ends = torch.stack(tensor.aminmax())
    return not bool((ends.isnan() if may_be_infinite else ~ends.isfinite()).any())


@contextlib.contextmanager
def evaluation(model: nn.Module, *, training: bool = False) -> Iterator[None]:
    """Evaluation mode, no gradients, eager, fixed random state; everything is put back afterwards."""
    modes = [(module, module.training) for _, module in named_modules(model)]
    devices = {p.device for module, _ in modes for p in module._parameters.values() if p is not None}
    elsewhere = any(device.type != "cpu" for device in devices)
    fastpath = torch.backends.mha.get_fastpath_enabled()
    model.train(training)  # also where nothing changes: some modules drop what they keep for evaluation
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.no_grad(),
            torch.random.fork_rng(sorted(d.index for d in devices if d.type == "cuda")),
            torch.compiler.set_stance("force_eager"),
            torch.autocast("cpu", enabled=False),
        ):
            # the generators of other devices take several milliseconds, also where there are none
            torch.manual_seed(0) if elsewhere else torch.default_generator.manual_seed(0)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for module, mode in modes:
            if module.training != mode:  # setting an attribute of a module is slow
                module.training = mode


def first_line(error: BaseException) -> str:
    """An error's message without the pages that some of torch's have."""
    return str(error).strip().split("\n", 1)[0].rstrip(".:")


def tensors(tree: object) -> list[Tensor]:
    """All tensors in a nested structure of lists, tuples, dicts and model-output classes."""
    leaves: list[Tensor] = []
    for leaf in tree_iter(tree):
        if isinstance(leaf, Tensor):
            leaves.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (nn.Module, type)):
            leaves += [t for t in vars(leaf).values() if isinstance(t, Tensor)]
    return leaves


def describe(example_input: object) -> str:
    """Shapes and types of an example input, for messages."""

    def one(leaf: object) -> Any:
        if isinstance(leaf, Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{tuple(leaf.shape)}"
        return type(leaf).__name__

    return str(tree_map(one, example_input)).replace("'", "")
