"""Count multiply-adds, memory access and parameters of a network, layer by layer.

The counts come from one recorded forward pass, so they cover what really runs: functional calls, matrix
products inside attention, layers called twice. See ``docs/metrics.md`` for both conventions term by term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn

from pcshrink.config import Convention
from pcshrink.errors import ConfigError
from pcshrink.graph.examples import check_values
from pcshrink.graph.model import tensors, unwrap
from pcshrink.graph.record import Graph, Op, record
from pcshrink.measure.cost_rules import Count, count, kernel_size, op_name
from pcshrink.measure.result import LayerCost, Profile

GATE = "pcs_gate"
KINDS = ("conv", "linear", "matmul", "recurrent", "norm", "activation", "pool", "gate")


def profile(
    model: nn.Module, example_input: object, convention: Convention = "layers", *, batch_size: int | None = None
) -> Profile:
    """Count what one sample costs; the model is left exactly as it was.

    All counts are for one sample in evaluation mode: work that depends on the input is divided by the batch
    size, work that does not (on weights alone) counts once, so the batch size of the example does not change
    the result.

    Args:
        model: Any module, gated or not.
        example_input: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        convention: ``layers`` counts convolutions, linear layers and attention products; ``paper`` adds bias,
            norm, activation and pooling elements to madds, image and max-pool output to mem_access.
        batch_size: Samples in the example. Default: the length of the first argument if that is a list of
            tensors, else the first axis of the first tensor.

    Raises:
        ConfigError: The convention is unknown, or the batch size is not positive.
        TraceError: The model does not run on the example input.

    Example:
        >>> import torch
        >>> cost = profile(torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.rand(2, 3, 4, 4))
        >>> cost.madds, cost.mem_access, cost.params
        (3456, 344, 216)
    """
    if convention not in get_args(Convention):
        message = f"convention must be one of {', '.join(get_args(Convention))}, got {convention!r}"
        raise ConfigError(message)
    if batch_size is not None and batch_size < 1:
        message = f"batch_size must be at least 1, got {batch_size}"
        raise ConfigError(message)
    model = unwrap(model)
    check_values(example_input)
    graph = record(model, example_input)
    batch = batch_size or _batch_size(graph, example_input)
    ledger = _Ledger(model, batch, convention)
    ledger.read(graph, tensors(example_input))
    rows = ledger.rows()
    return Profile(
        convention=convention,
        madds=sum(row.madds for row in rows),
        mem_access=sum(row.mem_access for row in rows),
        params=sum(row.params for row in rows),
        batch_size=batch,
        layers=rows,
    )


def _batch_size(graph: Graph, example_input: object) -> int:
    """Samples in the example; one where the first convolution shows that the input has no batch axis."""
    first = example_input
    while isinstance(first, (tuple, dict)) and first:
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    if isinstance(first, list) and first and all(isinstance(item, Tensor) for item in first):
        return len(first)
    inputs = tensors(example_input)
    batch = int(inputs[0].shape[0]) if inputs and inputs[0].dim() > 1 else 1
    convs = (op for op in graph.ops if op_name(op) == "convolution")
    conv = next(convs, None)
    return batch if batch and (conv is None or conv.args[0].shape[0] % batch == 0) else 1


@dataclass
class _Sum:
    """Running totals of one row; ``scaled`` counts grow with the batch, ``fixed`` ones do not."""

    scaled_madds: int = 0
    fixed_madds: int = 0
    scaled_access: int = 0
    fixed_access: int = 0
    output_shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Pooled:
    """A tensor made by pooling: how many numbers went in, and the row that counted them, if any."""

    size: int
    counted: _Sum | None


class _Ledger:
    """Adds up the counts of a recording by module and kind."""

    def __init__(self, model: nn.Module, batch: int, convention: Convention) -> None:
        self.model = model
        self.batch = batch
        self.paper = convention == "paper"
        self.modules = dict(model.named_modules())
        self.owners = {p: name.rpartition(".")[0] for name, p in model.named_parameters()}
        self.storages = {_storage(p): name for p, name in self.owners.items()}
        self.data: set[int] = set()
        self.kernels: set[tuple[int, int, tuple[int, ...]]] = set()
        self.sums: dict[tuple[str, str], _Sum] = {}
        self.pooled: dict[int, _Pooled] = {}

    def read(self, graph: Graph, inputs: list[Tensor]) -> None:
        """Take in a whole recording; ``inputs`` are the tensors everything else is measured against."""
        self.data = {_storage(x) for x in inputs}
        if self.paper:
            image = self.sums.setdefault(("", "input"), _Sum())
            image.scaled_access = sum(x.numel() for x in inputs)
            image.output_shape = tuple(inputs[0].shape) if inputs else ()
        for op in graph.ops:
            if op.func is None:
                self._boundary(op)
                continue
            cost = count(op, self._constant)
            depends = any(_storage(t) in self.data for t in tensors((op.args, op.kwargs)))
            entry = None if cost is None else self._add(op, cost, depends)
            if self.paper:
                self._follow_pooling(op, entry)
            if depends:
                self.data.update(map(_storage, tensors(op.out)))

    def _constant(self, tensor: Tensor) -> bool:
        return _storage(tensor) not in self.data

    def _boundary(self, op: Op) -> None:
        """A module's own output is a truer shape than that of its last, maybe flattened, operation."""
        if op.leaving and isinstance(op.out, Tensor) and not list(self.modules[op.module].children()):
            for kind in KINDS:
                if (op.module, kind) in self.sums:
                    self.sums[op.module, kind].output_shape = tuple(op.out.shape)

    def _follow_pooling(self, op: Op, entry: _Sum | None) -> None:
        """Give a gate the cost of the pooling that feeds it, though a hook outside the gate does it."""
        name, sources = op_name(op), [_storage(t) for t in tensors(op.args)]
        before, gate, _ = op.module.rpartition(GATE)
        if gate:
            for pooled in [self.pooled.pop(s) for s in sources if s in self.pooled]:
                if pooled.counted is not None:
                    pooled.counted.scaled_madds -= pooled.size
                self.sums.setdefault((before + GATE, "gate"), _Sum()).scaled_madds += pooled.size
        elif name in ("mean", "sum"):
            self.pooled[_storage(op.out)] = _Pooled(op.args[0].numel(), entry)
        elif name in ("mul", "div", "_to_copy") and sources[0] in self.pooled:
            self.pooled[_storage(op.out)] = self.pooled.pop(sources[0])

    def _add(self, op: Op, cost: Count, depends: bool) -> _Sum:
        name = self._owner(op, cost)
        entry = self.sums.setdefault((name, _kind(name, cost.kind)), _Sum())
        entry.output_shape = tuple(cost.output.shape)
        madds = cost.madds + (cost.extra if self.paper else 0)
        access = cost.output.numel() if self._map(op, cost, depends) else 0
        if depends:
            entry.scaled_madds += madds
            entry.scaled_access += access
        else:
            entry.fixed_madds += madds
            entry.fixed_access += access
        for kernel in cost.kernels:
            # A kernel sits in memory once, however often it is used.
            key = (_storage(kernel), int(kernel.storage_offset()), tuple(sorted(kernel.shape)))
            if key not in self.kernels:
                self.kernels.add(key)
                entry.fixed_access += kernel_size(kernel)
        return entry

    def _map(self, op: Op, cost: Count, depends: bool) -> bool:
        """Whether Eq. 16 counts this output: a feature *map*, so not the vector a classifier layer writes."""
        if cost.kind == "linear":
            return cost.output[..., 0].numel() > (self.batch if depends else 1)
        return bool(cost.kernels) or (self.paper and "max_pool" in op_name(op))

    def _owner(self, op: Op, cost: Count) -> str:
        """Whose row a cost belongs to: the module that holds the kernel, else the one that was running."""
        owners = {self.storages.get(_storage(kernel)) for kernel in cost.kernels}
        running = self.modules[op.module]
        held = {_storage(p) for p in running.parameters(recurse=False)}
        if len(owners) == 1 and not any(_storage(kernel) in held for kernel in cost.kernels):
            owner = owners.pop()
            return op.module if owner is None else owner
        return op.module

    def rows(self) -> list[LayerCost]:
        """One row for each module and kind that costs anything, parameters no operation used last."""
        params = self._params()
        rows = []
        for (name, kind), entry in self.sums.items():
            own = params.pop(name, 0) if kind != "input" else 0
            madds = self._per_sample(entry.scaled_madds) + entry.fixed_madds
            access = self._per_sample(entry.scaled_access) + entry.fixed_access
            if own or madds or access:
                rows.append(_row(name, kind, own, madds, access, entry.output_shape))
        return rows + [_row(name, _kind(name, "other"), own, 0, 0, ()) for name, own in params.items()]

    def _params(self) -> dict[str, int]:
        params: dict[str, int] = {}
        for parameter in self.model.parameters():
            name = self.owners[parameter]
            params[name] = params.get(name, 0) + parameter.numel()
        return params

    def _per_sample(self, total: int) -> int:
        return total // self.batch if total % self.batch == 0 else round(total / self.batch)


def _kind(name: str, kind: str) -> str:
    return "gate" if GATE in name.split(".") else kind


def _row(name: str, kind: str, params: int, madds: int, access: int, shape: tuple[int, ...]) -> LayerCost:
    return LayerCost(
        name=name,
        kind=kind,
        params=params,
        madds=madds,
        mem_access=access,
        output_shape=shape,
    )


def _storage(tensor: Tensor) -> int:
    """Identity of the memory behind a tensor: the same for all its views. The recording keeps it alive."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return id(tensor)
