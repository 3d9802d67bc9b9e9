"""What cannot be cut or copied like ordinary modules: scripted, exported, compiled, hooked from outside."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pcshrink.errors import TraceError
from pcshrink.graph.copies import duplicate
from pcshrink.graph.derived import weight_hooks
from pcshrink.graph.model import describe, evaluation, first_line, named_modules, run, tensors


def check_ordinary(model: nn.Module) -> None:
    """Refuse what is no ordinary module as a whole.

    Raises:
        TraceError: The model is the result of ``torch.jit`` or ``torch.export``.
    """
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        message = f"a torch.nn.Module is needed, got {kind}"
        raise TraceError(message)
    if isinstance(model, torch.jit.ScriptModule):
        message = (
            f"the model is scripted or traced by torch.jit ({kind}), so its layers can be neither gated nor cut. Pass "
            "the nn.Module it was made from, and script the compact model afterwards."
        )
        raise TraceError(message)
    if any(name in vars(model) for name in ("_in_spec", "_export_root")) or "train" in vars(model):
        message = (
            f"the model is the result of torch.export ({kind}), which has no training mode and no layers to gate. Pass "
            "the nn.Module it was exported from, and export the compact model afterwards."
        )
        raise TraceError(message)


def scripted_parts(model: nn.Module) -> list[str]:
    """The names of the outermost scripted or traced modules."""
    scripted: list[str] = []
    for name, module in named_modules(model):
        if isinstance(module, torch.jit.ScriptModule) and not is_inside(name, scripted):
            scripted.append(name)
    return scripted


def is_inside(name: str, parts: list[str]) -> bool:
    """Whether a module or tensor belongs to one of these modules, or is one of them."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def forget_compiled() -> None:
    """Drop code that ``torch.compile`` made: it does not notice that gates came or went, and would run without them."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def hooked_from_outside(model: nn.Module) -> list[str]:
    """Modules with hooks or a forward pass that somebody put on the instance; a copy may share them with the model."""
    return [name or type(model).__name__ for name, module in named_modules(model) if _has_strange_hooks(module)]


def _has_strange_hooks(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return False
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    known = [id(hook) for hook in weight_hooks(module)]
    if "forward" in vars(module):
        hooks.append(vars(module)["forward"])
    return any(id(hook) not in known and not _is_ours(hook) for hook in hooks)


def _is_ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", None) or type(hook).__module__).startswith("pcshrink.")


def check_copies(model: nn.Module, example_input: object) -> None:
    """Make sure that a copy of a hooked model computes by itself what the model does.

    A hook that is a closure is shared by model and copy: what it keeps for a later layer goes to the model only.

    Raises:
        TraceError: The copy gives something else, or does not run.
    """
    hooked = hooked_from_outside(model)
    if not hooked:
        return
    other = tree_map(_changed, example_input)
    way_out = (
        "Keep what hooks store on a module (a bound method of it as the hook, so that copies get their own), or remove "
        f"the hooks before attaching. Modules with hooks: {', '.join(hooked[:8])}"
    )
    try:
        with evaluation(model):
            expected = [t.clone() for t in tensors(run(model, other))]
    except Exception:
        return  # the changed input is none that this model takes, so it says nothing about the hooks
    try:
        with evaluation(model):
            run(model, example_input)  # what hooks keep now differs from what the copy is to see
        copied = duplicate(model)
        with evaluation(copied):
            got = tensors(run(copied, other))
    except Exception as error:
        message = f"a copy of the hooked model does not run: {type(error).__name__}: {first_line(error)}. {way_out}"
        raise TraceError(message) from error
    if len(expected) != len(got) or not all(_same(a, b) for a, b in zip(expected, got, strict=True)):
        message = f"a copy of the hooked model gives another output than the model on {describe(other)}. {way_out}"
        raise TraceError(message)


def _changed(leaf: object) -> Any:
    """Another input of the same shape."""
    if not isinstance(leaf, Tensor) or leaf.ndim == 0:
        return leaf
    return leaf.flip(-1) * 0.5 if leaf.is_floating_point() else leaf.flip(-1)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, atol=1e-6, equal_nan=True)
