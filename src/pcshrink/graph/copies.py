"""Deep copies as ``copy.deepcopy`` makes them, without what it spends on the dozen dictionaries of a module."""

from __future__ import annotations

import copy
import copyreg
import functools
from collections import OrderedDict
from types import FunctionType, MethodType, NoneType
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.graph.model import named_modules

Memo = dict[Any, Any]  # as of ``copy.deepcopy``: id -> the copy

# Copies of these are the very same objects.
ATOMS = frozenset({NoneType, bool, int, float, complex, str, bytes, FunctionType, torch.dtype})
TABLES = frozenset({dict, OrderedDict})
AS_EVER = getattr(object, "__getstate__", None)  # older Pythons have none


def duplicate(model: nn.Module, memo: Memo | None = None) -> nn.Module:
    """A deep copy.

    Args:
        model: Any module.
        memo: ``id`` of an object -> what stands for it in the copy.
    """
    memo = {} if memo is None else memo
    states = [(m, state) for _, m in named_modules(model) if id(m) not in memo and (state := _state(m)) is not None]
    for module, _ in states:  # all at first: hooks refer to modules anywhere
        memo[id(module)] = type(module).__new__(type(module))
    for module, state in reversed(states):  # children before those that hold them
        memo[id(module)].__setstate__(_attributes(state, memo))
    made: nn.Module = copy.deepcopy(model, memo)
    return made


def shared_parameters(model: nn.Module) -> dict[int, nn.Parameter]:
    """A memo for copies that only read parameters: new ones in the memory of the old, which is most of a model."""
    plain = [p for p in model.parameters() if type(p) is nn.Parameter]
    return {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in plain}


def _state(module: nn.Module) -> dict[str, Any] | None:
    """What a module is made of; ``None`` for one that says itself how it is copied."""
    kind: Any = type(module)
    if not _is_plain(kind) or "__deepcopy__" in vars(module):
        return None
    state: Any = vars(module) if getattr(kind, "__getstate__", None) is AS_EVER else module.__getstate__()
    return state if type(state) is dict else None


@functools.lru_cache(maxsize=256)
def _is_plain(kind: type[nn.Module]) -> bool:
    return (
        not hasattr(kind, "__deepcopy__")
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind not in copyreg.dispatch_table
        and not issubclass(kind, (list, dict))
        and not any(vars(base).get("__slots__") for base in kind.__mro__)
    )


def _attributes(state: dict[str, object], memo: Memo) -> dict[str, Any]:
    """Most attributes of modules are numbers and empty dictionaries."""
    copied: dict[str, Any] = {}
    for name, value in state.items():
        kind = type(value)
        if kind in ATOMS:
            copied[name] = value
        elif kind in TABLES and not value:
            copied[name] = memo.setdefault(id(value), kind())
        else:
            if isinstance(value, Tensor) and value.grad_fn is not None and id(value) not in memo:
                memo[id(value)] = value.detach().clone()  # a weight that hooks computed while training
            copied[name] = _value(value, memo)
    return copied


def _value(value: Any, memo: Memo) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    if (known := memo.get(id(value))) is not None:
        return known
    if kind in TABLES:
        made = memo[id(value)] = kind()
        for key, item in value.items():
            made[_value(key, memo)] = _value(item, memo)
        return made
    if kind is tuple and all(type(item) in ATOMS for item in value):
        return value
    if kind is set and all(type(item) in ATOMS for item in value):
        return memo.setdefault(id(value), set(value))
    if kind is MethodType:
        return MethodType(value.__func__, _value(value.__self__, memo))
    if kind is Tensor and _is_whole(value):
        return _clone(value, memo)
    return copy.deepcopy(value, memo)


def _is_whole(tensor: Tensor) -> bool:
    """An ordinary tensor that is all of its memory."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or vars(tensor))
        and tensor.grad is None
        and tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() == tensor.nbytes
    )


def _clone(tensor: Tensor, memo: Memo) -> Tensor:
    """Tensors that share memory still do so in the copy: torch remembers in the memo which memory it has copied."""
    copied: dict[int, Any] = memo.setdefault("torch", {})
    memory = tensor.untyped_storage()
    if memory._cdata in copied:
        shared: Tensor = copy.deepcopy(tensor, memo)
        return shared
    made = memo[id(tensor)] = tensor.clone()
    copied[memory._cdata] = made.untyped_storage()
    return made
