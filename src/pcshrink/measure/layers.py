"""Measured times of single layers: a table that is filled as it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError
from pcshrink.graph.derived import stored_as
from pcshrink.graph.model import evaluation, run
from pcshrink.measure.timing import clock_for, interleave, settled
from pcshrink.runtime.registry import DEFAULT_RUNTIME, RuntimeLike
from pcshrink.runtime.run import check_runtime, ready, use_threads
from pcshrink.surgery.plan import PrunePlan

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Layer:
    """A convolution or linear layer on an input of a certain shape: all that its time depends on."""

    kind: str
    input_shape: tuple[int, ...]  # with the batch
    width_in: int
    width_out: int
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] | str = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1

    @property
    def madds(self) -> int:
        """Multiply-adds of one call on the whole batch."""
        if self.kind == "Linear":
            positions = 1
            for size in self.input_shape[:-1]:
                positions *= size
            return positions * self.width_in * self.width_out
        out = self.build()(torch.empty(self.input_shape, device="meta"))
        per_place = self.width_in // self.groups
        for size in self.kernel:
            per_place *= size
        return int(out.numel()) * per_place

    def build(self, device: str = "meta") -> nn.Module:
        """The layer itself, with random weights."""
        if self.kind == "Linear":
            return nn.Linear(self.width_in, self.width_out, device=device)
        made: nn.Module = getattr(nn, self.kind)(
            self.width_in, self.width_out, self.kernel, self.stride, self.padding, self.dilation, self.groups,
            device=device,
        )  # fmt: skip
        return made


def layers_of(model: nn.Module, example_input: object) -> dict[str, list[Layer]]:
    """The convolutions and linear layers of a model by name, once for each time they are called.

    Args:
        model: The model, without gates.
        example_input: A tensor, or a tuple of arguments.
    """
    modules = dict(model.named_modules())
    shapes = input_shapes(model, example_input)
    return {name: [_layer(modules[name], shape) for shape in seen] for name, seen in shapes.items()}


def narrowed(layers: dict[str, list[Layer]], plan: PrunePlan) -> dict[str, list[Layer]]:
    """The same layers after a plan, worked out from the plan alone."""
    return {name: [_narrow(layer, name, plan) for layer in calls] for name, calls in layers.items()}


def _narrow(layer: Layer, name: str, plan: PrunePlan) -> Layer:
    kept = next((plan.tensors[stored] for stored in stored_as(name) if stored in plan.tensors), {})
    groups = int(plan.attributes.get(name, {}).get("groups", layer.groups))
    width_out = len(kept[0]) if 0 in kept else layer.width_out
    width_in = groups * (len(kept[1]) if 1 in kept else layer.width_in // layer.groups)
    axis = len(layer.input_shape) - 1 if layer.kind == "Linear" else 1
    shape = tuple(width_in if place == axis else size for place, size in enumerate(layer.input_shape))
    return replace(layer, input_shape=shape, width_in=width_in, width_out=width_out, groups=groups)


def input_shapes(model: nn.Module, example_input: object) -> dict[str, list[tuple[int, ...]]]:
    """The shapes that every convolution and linear layer is fed, in the order of their first calls."""
    seen: dict[str, list[tuple[int, ...]]] = {}

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, args: tuple[object, ...]) -> None:
            if args and isinstance(args[0], Tensor):
                seen.setdefault(name, []).append(tuple(args[0].shape))

        return hook

    handles = [
        module.register_forward_pre_hook(watch(name))
        for name, module in model.named_modules()
        if type(module) in (*CONVS, nn.Linear)
    ]
    try:
        with evaluation(model):
            run(model, example_input)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _layer(module: Any, shape: tuple[int, ...]) -> Layer:
    if isinstance(module, nn.Linear):
        width_out, width_in = module.weight.shape
        return Layer("Linear", (*shape[:-1], width_in), int(width_in), int(width_out))
    groups = int(module.groups)
    width_out, width_in = int(module.weight.shape[0]), int(module.weight.shape[1]) * groups
    fed = (shape[0], width_in, *shape[2:])
    return Layer(
        type(module).__name__, fed, width_in, width_out, module.kernel_size, module.stride,
        module.padding, module.dilation, groups,
    )  # fmt: skip


class LayerTable:
    """Seconds per call of every layer asked for, measured on this machine once and then remembered.

    Args:
        runtime: Where to measure.
        threads: How many threads; None: as many as torch uses now.
        seconds: About how long to measure each layer.
    """

    def __init__(
        self, runtime: RuntimeLike = DEFAULT_RUNTIME, threads: int | None = None, seconds: float = 0.04
    ) -> None:
        self.runtime = check_runtime(runtime)
        if not self.runtime.by_layer:
            message = (
                f'single layers are not timed with runtime="{self.runtime.name}", which is slow to start; use "eager"'
            )
            raise ConfigError(message)
        self.threads, self.seconds = threads, seconds
        self.times: dict[Layer, float] = {}

    def measure(self, layers: Iterable[Layer]) -> None:
        """Fill in what is still missing of these, all in turns."""
        missing = [layer for layer in dict.fromkeys(layers) if layer not in self.times]
        if not missing:
            return
        with use_threads(self.threads) as threads, torch.random.fork_rng(devices=[]):
            calls = {
                str(number): ready(layer.build("cpu"), torch.randn(layer.input_shape), self.runtime, threads)
                for number, layer in enumerate(missing)
            }
            taken = interleave(calls, self.seconds, clock=clock_for(threads))
        self.times |= {layer: settled(taken[str(n)]) for n, layer in enumerate(missing)}

    def total(self, layers: dict[str, list[Layer]]) -> float:
        """The sum over a model's layers, in seconds."""
        self.measure(layer for calls in layers.values() for layer in calls)
        return sum(self.times[layer] for calls in layers.values() for layer in calls)
