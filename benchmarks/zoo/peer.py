"""The same architecture in Torch-Pruning: does it cut it, and is the result the network without these channels?"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch_pruning as tp
from torch import Tensor, nn

from benchmarks.zoo.network import Network
from pcshrink.graph.model import tensors
from pcshrink.graph.record import record
from testing.checks import outputs, relative

PATIENCE_S = 30  # of the processor's time
CLOSE = 1e-3  # far above rounding
ROWS_FIRST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
WRITING = ("aten::convolution", "aten::addmm", "aten::mm", "aten::bmm")
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm)


def outcome(network: Network) -> str:
    """``works``, ``wrong``, ``crashes`` or ``removes nothing``, with what happened.

    Half of the channels go, by magnitude, with the library's defaults; the layers that make the outputs are left out.
    What it leaves is compared with the network in which the removed channels are set to zero where they are written.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _try(network)
    except Exception as error:
        return f"crashes ({type(error).__name__})"


def _try(network: Network) -> str:
    model, zeroed, example = network.build(), network.build(), network.example(torch.float32, 1)
    before = sum(p.numel() for p in model.parameters())
    names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
    kept = [model.get_submodule(name) for name in _last_layers(model, example)]
    pruner = tp.pruner.MagnitudePruner(
        model, example, importance=tp.importance.MagnitudeImportance(p=2), pruning_ratio=0.5, ignored_layers=kept
    )
    for group in pruner.step(interactive=True):
        for dependency, indices in group:
            layer = dependency.target.module
            if layer in names and pruner.DG.is_out_channel_pruning_fn(dependency.handler):
                _zero_(zeroed.get_submodule(names[layer]), list(indices))
        group.prune()
    model.eval()
    if sum(p.numel() for p in model.parameters()) == before:
        return "removes nothing"
    other = network.example(torch.float32, 2)
    expected, got = outputs(zeroed.eval(), other), outputs(model, other)
    if [t.shape for t in expected] != [t.shape for t in got]:
        return "wrong (outputs of another shape)"
    worst = relative(expected, got)
    return "works" if worst <= CLOSE else f"wrong ({worst:.1g})"


def _last_layers(model: nn.Module, example: Any) -> list[str]:
    """The layers that write the outputs, with nothing but views and point-wise operations in between."""
    graph = record(model, example)
    final = {id(tensor) for tensor in tensors(graph.outputs)}
    found = []
    for op in reversed(graph.ops):
        outs = {id(tensor) for tensor in tensors(op.out)}
        if not outs & final:
            continue
        if op.func is None and op.leaving and not list(model.get_submodule(op.module).children()):
            if dict(model.get_submodule(op.module).named_parameters()):
                found.append(op.module)
                final -= outs
        elif op.func is not None and op.func._schema.name not in WRITING:
            final |= {id(tensor) for tensor in tensors((op.args, op.kwargs))}
    return found


@torch.no_grad()
def _zero_(layer: Any, channels: list[int]) -> None:
    """Make the layer write zeros in some channels."""
    weight: Tensor | None = getattr(layer, "weight", None)
    if isinstance(layer, (*ROWS_FIRST, *NORMS)) and weight is not None:
        weight[channels] = 0
    elif isinstance(layer, TRANSPOSED) and weight is not None:
        weight[:, channels] = 0
    if isinstance(layer, (*ROWS_FIRST, *NORMS, *TRANSPOSED)) and layer.bias is not None:
        layer.bias[channels] = 0
