"""Fold BatchNorm into the convolution or linear layer before it, for inference."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from pcshrink.graph.model import tensors, unwrap
from pcshrink.graph.record import Graph, record
from pcshrink.proof.verify import difference, outputs_of

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def fold_norms(model: nn.Module, example_input: object) -> tuple[nn.Module, float]:
    """Give a copy in which every norm that directly follows a layer is part of that layer's weights.

    Only norms whose input is the output of one convolution or linear layer, used nowhere else, are folded; a
    norm with a gate or any other hook stays.

    Args:
        model: Any module; it is left untouched.
        example_input: A tensor, or a tuple of arguments.

    Returns:
        The copy, and the largest relative difference of its output on the example: rounding, about 1e-6.
    """
    base = unwrap(model)
    folded = copy.deepcopy(base)
    pairs = _pairs(folded, record(folded, example_input))
    for layer, norm in pairs:
        _fold(folded.get_submodule(layer), folded.get_submodule(norm))
    for _, norm in pairs:
        parent, _, leaf = norm.rpartition(".")
        setattr(folded.get_submodule(parent), leaf, nn.Identity())
    before = outputs_of(base, example_input, "the model")
    return folded, difference(before, outputs_of(folded, example_input, "the folded model"))


def _pairs(model: nn.Module, graph: Graph) -> list[tuple[str, str]]:
    """Layer and norm, where the norm alone reads what the layer writes and both run once."""
    writers: dict[int, str] = {}
    calls: dict[str, int] = {}
    readers: dict[int, int] = {}
    feeds: dict[str, int] = {}
    modules = dict(model.named_modules())
    for op in graph.ops:
        if op.func is not None:
            for tensor in tensors((op.args, op.kwargs)):
                readers[id(tensor)] = readers.get(id(tensor), 0) + 1
        elif op.leaving:
            if isinstance(op.out, Tensor) and type(modules[op.module]) in (*CONVS, *TRANSPOSED, nn.Linear):
                writers[id(op.out)] = op.module
        else:
            calls[op.module] = calls.get(op.module, 0) + 1
            if type(modules[op.module]) in NORMS and op.args and isinstance(op.args[0], Tensor):
                feeds[op.module] = id(op.args[0])
    used: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            used[id(parameter)] = used.get(id(parameter), 0) + 1
    final = {id(t) for t in tensors(graph.outputs)}
    pairs = []
    for norm, fed in feeds.items():
        layer = writers.get(fed)
        if layer is None or readers.get(fed) != 1 or fed in final or calls[norm] != 1 or calls[layer] != 1:
            continue
        if _plain(modules[layer], used) and _plain(modules[norm], used) and _fits(modules[layer], modules[norm]):
            pairs.append((layer, norm))
    return pairs


def _plain(module: nn.Module, used: dict[int, int]) -> bool:
    """Nothing hooked on, nothing inside, and no weight that another layer shares."""
    shared = any(used[id(p)] > 1 for p in module._parameters.values() if p is not None)
    hooks = module._forward_hooks or module._forward_pre_hooks
    return not (shared or hooks or list(module.children()) or hasattr(module, "parametrizations"))


def _fits(layer: nn.Module, norm: nn.Module) -> bool:
    if isinstance(norm, NORMS) and (norm.running_mean is None or norm.running_var is None):
        return False
    if isinstance(layer, nn.Linear):
        return isinstance(norm, nn.BatchNorm1d)
    return not isinstance(layer, TRANSPOSED) or layer.groups == 1


@torch.no_grad()
def _fold(layer: Any, norm: Any) -> None:
    statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    if isinstance(layer, nn.Linear):
        layer.weight, layer.bias = fuse_linear_bn_weights(layer.weight, layer.bias, *statistics)
        return
    layer.weight, layer.bias = fuse_conv_bn_weights(
        layer.weight, layer.bias, *statistics, transpose=isinstance(layer, TRANSPOSED)
    )
