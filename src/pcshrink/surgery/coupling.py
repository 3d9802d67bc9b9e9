"""Walk a recording and find the groups: which channels leave together, behind which gates, and what must stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from pcshrink.surgery import layout, spatial, splits  # noqa: F401 - importing them registers their rules
from pcshrink.surgery.channels import FIXED, Channels, Flags, Ids, Ledger, Origin, Site, Value
from pcshrink.surgery.graph import Graph, Op, tensors
from pcshrink.surgery.pointwise import is_pointwise, pointwise
from pcshrink.surgery.rules import RULES, Call, averaged


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that can leave one by one, each from all the tensors of the group at once."""

    name: str
    roots: Ids  # the component of each channel
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    sites: tuple[Site, ...]

    @property
    def channels(self) -> int:
        """How many channels the group has."""
        return len(self.roots)


@dataclass
class Coupling:
    """The outcome of the walk."""

    ledger: Ledger
    root: Ids  # unit -> component
    groups: list[ChannelGroup]
    refused: dict[str, str]

    def alive(self, keep: dict[str, Flags]) -> Flags:
        """For every unit, whether it stays when the groups keep these channels."""
        stays = np.ones(self.ledger.count, bool)
        for group in self.groups:
            if group.name in keep:
                stays[group.roots] = keep[group.name]
        result: Flags = stays[self.root]
        return result

    def without(self, names: Iterable[str], reason: str) -> Coupling:
        """The same coupling with some groups left whole."""
        dropped = set(names)
        gone = [g for g in self.groups if g.name in dropped]
        refused = dict(self.refused)
        stay = [g for g in self.groups if g.name not in dropped]
        written = {w for g in stay for w in g.writers}
        refused |= {w: reason for g in gone for w in g.writers if w not in written}
        return replace(self, groups=stay, refused=refused)


class Walk:
    """Carries channel knowledge through a recording, operation by operation."""

    def __init__(self, model: nn.Module, ledger: Ledger) -> None:
        self.model = model
        self.ledger = ledger
        self.modules = dict(model.named_modules())
        self.values: dict[int, Value] = {}
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.values[id(tensor)] = ledger.parameter(name, tensor)
        self.aliases: dict[int, list[Tensor]] = {}
        self.entered: dict[str, tuple[Tensor, Value] | None] = {}
        self.wrote: set[str] = set()
        self.overridden: dict[str, tuple[int, Value]] = {}

    def adopt(self, copy: nn.Module) -> None:
        """Know the parameters of a copy as those of the model itself."""
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        for name, tensor in (*copy.named_parameters(), *copy.named_buffers()):
            self.values[id(tensor)] = self.values[id(own[name])]

    def lookup(self, tensor: Tensor) -> Value:
        """What is known about a tensor."""
        return self.values.get(id(tensor)) or Value(tuple(tensor.shape))

    def follow(self, graph: Graph) -> None:
        """Apply every operation, then pin what the network returns."""
        for op in graph.ops:
            if op.func is not None:
                self._apply(op)
            elif op.leaving:
                self._leave(op)
            else:
                self._enter(op)
        for tensor in tensors(graph.outputs):
            for channels in self.lookup(tensor).axes.values():
                self.ledger.pin(channels.units, "network output")

    def _enter(self, op: Op) -> None:
        inputs = tensors((op.args, op.kwargs))
        self.entered[op.module] = (inputs[0], self.lookup(inputs[0])) if inputs else None
        self.wrote.discard(op.module)
        if inputs and isinstance(self.modules.get(op.module), (nn.Linear, nn.modules.conv._ConvNd)):
            self._gate_heads(op.module, inputs[0])

    def _gate_heads(self, module: str, tensor: Tensor) -> None:
        """Heads leave attention in the middle of a module, so their gate sits at the input of the next layer."""
        value = self.lookup(tensor)
        for axis, channels in value.axes.items():
            if channels.heads and not channels.zero.all() and Site(module) not in self.ledger.gates:
                site = Site(module, at_input=True)
                if self._open_site(site, value, axis):
                    self.overridden[module] = (id(tensor), value)
                    self.values[id(tensor)] = replace(value, axes=value.axes | {axis: channels.gated(site)})

    def _open_site(self, site: Site, value: Value, axis: int) -> bool:
        origin = value.origin
        if origin is None or origin.batch != value.shape[0] or axis == 0:
            origin = self._own_input(site.module, value.shape[0])
        if origin is None or axis == 0:
            return False
        self.ledger.pin(origin.averaged, f"the generator of {site.module!r} averages over them")
        from_end = isinstance(self.modules.get(site.module), nn.Linear) or axis != 1
        self.ledger.gates.setdefault(site, (value.axes[axis].units, axis - len(value.shape) if from_end else 1, origin))
        return True

    def _own_input(self, module: str, batch: int) -> Origin | None:
        entered = self.entered.get(module)
        if entered is None or len(entered[1].shape) < 2 or entered[1].shape[0] != batch:
            return None
        value = entered[1]
        last = isinstance(self.modules.get(module), nn.Linear) or len(value.shape) == 3
        axis = next(iter(value.axes), len(value.shape) - 1 if last else 1)
        channels = value.at(axis)
        units = np.full(value.shape[axis], FIXED) if channels is None else channels.units
        axis_of_any_rank = axis if axis == 1 else axis - len(value.shape)
        return Origin(module, axis_of_any_rank, units, batch, averaged(value, axis))

    def _leave(self, op: Op) -> None:
        """A layer's output is a place for a gate, from where on dead channels are zero."""
        if op.module in self.overridden:
            key, before = self.overridden.pop(op.module)
            self.values[key] = before
        if not isinstance(op.out, Tensor) or not (op.module in self.wrote or self._owns_tensors(op.module)):
            return
        value, site = self.lookup(op.out), Site(op.module)
        if not value.axes or replace(site, at_input=True) in self.ledger.gates:  # one gate for each module
            return
        written = len(value.shape) - 1 if isinstance(self.modules.get(op.module), nn.Linear) else 1
        axis = written if written in value.axes else next(iter(value.axes))
        channels = value.axes[axis]
        if not channels.zero.all() and not channels.heads and self._open_site(site, value, axis):
            self.values[id(op.out)] = replace(value, axes=value.axes | {axis: channels.gated(site)})

    def _owns_tensors(self, name: str) -> bool:
        """A leaf with numbers of its own, such as a frozen norm: it may move zero, so a gate fits behind it."""
        module = self.modules.get(name)
        return module is not None and not module._modules and bool(module._parameters or module._buffers)

    def _apply(self, op: Op) -> None:
        raw = op.func._schema.name.split("::")[1]
        name = raw if raw in RULES else raw.removesuffix("_") if op.func._schema.is_mutable else raw
        module = self.modules.get(op.module)
        entered = self.entered.get(op.module)
        attributes = vars(module) if module is not None else {}
        call = Call(op, name, self.ledger, self.lookup, attributes, entered[0] if entered else None)
        if name in ("convolution", "addmm", "mm") or "batch_norm" in name:
            self.wrote.add(op.module)
        if name in RULES:
            result = RULES[name](call)
        elif is_pointwise(name, op.func):
            result = pointwise(call)
        else:
            result = None
            call.pin_all(f"operation {op.func._schema.name} in {op.module!r} has no rule")
        self._store(op, result)

    def _store(self, op: Op, result: Value | list[Value] | None) -> None:
        if result is None:
            return
        outs = list(op.out) if isinstance(op.out, (list, tuple)) else [op.out]
        for tensor, value in zip(outs, [result] if isinstance(result, Value) else result, strict=False):
            if not isinstance(tensor, Tensor):
                continue
            single = {a: c for a, c in value.axes.items() if value.shape[a] > 1}
            for axis, channels in value.axes.items():
                if axis not in single:
                    self.ledger.pin(channels.units, "a single channel cannot leave")
            self.values[id(tensor)] = replace(value, axes=single)
            self._mark_aliases(op, tensor, self.values[id(tensor)])

    def _mark_aliases(self, op: Op, tensor: Tensor, value: Value) -> None:
        """A write into a view also changes the tensors that share its memory."""
        if not tensor.numel():
            return
        family = self.aliases.setdefault(tensor.untyped_storage().data_ptr(), [])
        if op.func._schema.is_mutable and not all(c.zero.all() for c in value.axes.values()):
            for other in family:
                if other is not tensor and (known := self.values.get(id(other))) is not None:
                    why = f"{op.func._schema.name} in {op.module!r} writes into a view"
                    axes = {a: c.broken(why) for a, c in known.axes.items()}
                    self.values[id(other)] = replace(known, axes=axes)
        if all(other is not tensor for other in family):
            family.append(tensor)


def conclude(walk: Walk, called: set[str], excluded: dict[str, str]) -> Coupling:
    """Turn what a walk found into groups and refusals.

    Args:
        walk: A walk that has followed the recordings.
        called: The modules that ran in them.
        excluded: Module names whose output channels must stay, with the reason.
    """
    ledger = walk.ledger
    for name, reason in excluded.items():
        if name in ledger.writers:
            ledger.pin(ledger.writers[name], reason)
    root = ledger.components()
    reasons = _pinned(ledger, root)
    groups = _groups(ledger, root, reasons, order=list(walk.modules))
    refused = _refusals(ledger, root, reasons, groups)
    for name, module in walk.modules.items():
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) and name not in ledger.writers:
            refused[name] = "not used in the recorded pass" if name not in called else "its operation has no rule"
    return Coupling(ledger, root, groups, refused)


def _pinned(ledger: Ledger, root: Ids) -> dict[int, str]:
    """Component -> the first reason why it must stay."""
    reasons: dict[int, str] = {FIXED: "the network input"}
    for units, reason in ledger.pins:
        for component in np.unique(root[units]):
            reasons.setdefault(int(component), reason)
    return reasons


def _groups(ledger: Ledger, root: Ids, reasons: dict[int, str], order: list[str]) -> list[ChannelGroup]:
    free = np.ones(ledger.count, bool)
    free[list(reasons)] = False
    sites = list(ledger.gates)
    components, behind = _gated(ledger, root, free, sites)
    families: dict[tuple[bytes, bytes], list[int]] = {}
    slots = _slots_of(ledger, root, components)
    for component, *family in zip(components.tolist(), slots, behind, strict=True):
        families.setdefault((family[0], family[1]), []).append(component)
    owner = np.full(ledger.count, -1)
    for number, members in enumerate(families.values()):
        owner[members] = number
    wrote, read = (_modules_of(table, root, owner, order) for table in (ledger.writers, ledger.readers))
    groups, taken = [], set[str]()
    for number, ((_, chosen), members) in enumerate(families.items()):
        at = [sites[i] for i in np.frombuffer(chosen, np.int64)]
        placed = tuple(sorted(at, key=lambda s: order.index(s.module)))
        base = name = (wrote.get(number) or [placed[0].module])[0]
        while name in taken:
            name = f"{base}#{len(taken)}"
        taken.add(name)
        writers, readers = tuple(wrote.get(number, ())), tuple(read.get(number, ()))
        groups.append(ChannelGroup(name, np.array(members), writers, readers, placed))
    return sorted(groups, key=lambda g: order.index(g.writers[0]) if g.writers else len(order))


def _gated(ledger: Ledger, root: Ids, free: Flags, sites: list[Site]) -> tuple[Ids, list[bytes]]:
    """The components that gates make zero where it matters, and the numbers of these gates' sites."""
    number = {site: i for i, site in enumerate(sites)}
    mark, found = np.zeros(ledger.count, bool), []
    for units, needs in ledger.needed:
        components = root[units]
        components = components[free[components]]
        for site in needs:
            behind = root[ledger.gates[site][0]]
            mark[behind] = True
            found.append(components[mark[components]] * len(sites) + number[site])
            mark[behind] = False
    pairs = _distinct(np.concatenate([np.zeros(0, np.int64), *found]))
    owners = pairs // max(len(sites), 1)
    components = np.unique(owners)
    return components, _rows(owners, pairs % max(len(sites), 1), components)


def _slots_of(ledger: Ledger, root: Ids, components: Ids) -> list[bytes]:
    """For each component the numbers of the parameter axes it lives on."""
    count = max(len(ledger.slots), 1)
    units = np.concatenate([np.zeros(0, np.int64), *(u for _, _, u in ledger.slots)])
    numbers = np.repeat(np.arange(len(ledger.slots)), [len(u) for _, _, u in ledger.slots])
    wanted = np.zeros(ledger.count, bool)
    wanted[components] = True
    wanted = wanted[root[units]]
    pairs = _distinct(root[units[wanted]] * count + numbers[wanted])
    return _rows(pairs // count, pairs % count, components)


def _distinct(numbers: Ids) -> Ids:
    """Sorted, each once; for long arrays quicker than ``np.unique``, which hashes."""
    ordered: Ids = np.sort(numbers)
    first: Flags = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    found: Ids = ordered[first]
    return found


def _rows(owners: Ids, values: Ids, components: Ids) -> list[bytes]:
    """The values of each component, from sorted pairs, in a form that can be compared."""
    starts = np.append(np.searchsorted(owners, components), len(owners)).tolist()
    return [values[a:b].tobytes() for a, b in itertools.pairwise(starts)]


def _modules_of(table: dict[str, Ids], root: Ids, owner: Ids, order: list[str]) -> dict[int, list[str]]:
    """Group number -> the modules whose channels belong to it, in the model's order."""
    found: dict[int, list[str]] = {}
    for module in sorted(table, key=order.index):
        for number in np.unique(owner[root[table[module]]]):
            if number >= 0:
                found.setdefault(int(number), []).append(module)
    return found


def _refusals(ledger: Ledger, root: Ids, reasons: dict[int, str], groups: list[ChannelGroup]) -> dict[str, str]:
    grouped = {w for g in groups for w in g.writers}
    refused = {}
    for module, units in ledger.writers.items():
        if module not in grouped:
            given = [reasons[int(c)] for c in np.unique(root[units]) if int(c) in reasons and c != FIXED]
            refused[module] = given[0] if given else "its output is never read by another layer"
    return refused


__all__ = ["ChannelGroup", "Channels", "Coupling", "Walk", "conclude"]
