"""What a walk found, as groups: which channels leave together, behind which gates, and what must stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from pcshrink.coupling.units import FIXED, Flags, Ids, Ledger, Site
from pcshrink.coupling.walk import SCRIPTED, Walk
from pcshrink.graph.derived import stored_as


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


class _Rows:
    """The values of each component, from pairs that are sorted by it.

    Attributes:
        repeats: For each component, whether it has the same values as the one before it.
    """

    def __init__(self, owners: Ids, values: Ids, components: Ids) -> None:
        self.values, self.starts = values, np.append(np.searchsorted(owners, components), len(owners))
        lengths = np.diff(self.starts)
        number, length = (np.repeat(of_each, lengths) for of_each in (np.arange(len(components)), lengths))
        differs = values != values[np.arange(len(values)) - length]  # the same place of a row of the same length
        self.repeats: Flags = np.append(False, lengths[1:] == lengths[:-1])[: len(components)]
        self.repeats[number[differs]] = False

    def row(self, number: int) -> bytes:
        """The values of a component, in a form that can be compared."""
        return self.values[self.starts[number] : self.starts[number + 1]].tobytes()


@dataclass
class Coupling:
    """The outcome of the walk."""

    ledger: Ledger
    root: Ids  # unit -> component
    groups: list[ChannelGroup]
    refused: dict[str, str]
    notes: tuple[str, ...] = ()  # paths of the code that were seen, but on which the cut is not proven

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


def conclude(walk: Walk, called: set[str], touched: set[str], excluded: dict[str, str]) -> Coupling:
    """Turn what a walk found into groups and refusals.

    Args:
        walk: A walk that has followed the recordings.
        called: The modules that ran in them.
        touched: The parameters that their operations took.
        excluded: Module names whose output channels must stay, with the reason.
    """
    ledger = walk.ledger
    for name, reason in excluded.items():
        if name in ledger.writers:
            ledger.pin(ledger.writers[name], reason)
    root = ledger.components()
    while True:  # gates that are used read inputs, whose other channel axes stay; that may leave other gates unused
        pins = _pinned(ledger, root)
        groups = _groups(ledger, root, pins, order={name: place for place, name in enumerate(walk.modules)})
        used = {site for group in groups for site in group.sites}
        over = [(site, units) for site, units in ledger.averaged if site in used and len(units)]
        if not over:
            break
        ledger.averaged = [(site, units) for site, units in ledger.averaged if site not in used]
        for site, units in over:
            ledger.pin(units, f"the gate of {site.module!r} averages over them")
    refused = _refusals(ledger, root, pins, groups)
    groups, alone = [g for g in groups if g.channels > 1], [g for g in groups if g.channels == 1]
    refused |= {w: "all its channels are tied together, so none can leave alone" for g in alone for w in g.writers}
    for name, module in walk.modules.items():
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) and name not in ledger.writers:
            refused[name] = _why_idle(name, called, touched)
    refused |= dict.fromkeys(walk.scripted, SCRIPTED)
    return Coupling(ledger, root, groups, refused)


def _why_idle(layer: str, called: set[str], touched: set[str]) -> str:
    """Why a layer has written nothing in the recordings."""
    if layer in called:
        return "its operation has no rule"
    if any(name in touched for name in stored_as(layer)):
        return "its weight is used without calling it, so no gate can reach what it writes; call it as a module"
    return "not used in the recorded pass"


def _pinned(ledger: Ledger, root: Ids) -> Ids:
    """For every component the number of the first pin that makes it stay; -1 where there is none."""
    first = np.full(ledger.count, -1)
    for number in reversed(range(len(ledger.pins))):
        first[root[ledger.pins[number][0]]] = number
    return first


def _groups(ledger: Ledger, root: Ids, pins: Ids, order: dict[str, int]) -> list[ChannelGroup]:
    free: Flags = pins < 0
    free[FIXED] = False
    sites = list(ledger.gates)
    components, behind = _gated(ledger, root, free, sites)
    families: dict[tuple[bytes, bytes], list[Ids]] = {}
    slots = _slots_of(ledger, root, components)
    changes = np.flatnonzero(~(slots.repeats & behind.repeats)).tolist()
    for first, end in itertools.pairwise([*changes, len(components)]):  # channels of a group are neighbours mostly
        families.setdefault((slots.row(first), behind.row(first)), []).append(components[first:end])
    owner = np.full(ledger.count, -1)
    for number, members in enumerate(families.values()):
        owner[np.concatenate(members)] = number
    wrote, read = (_modules_of(table, root, owner, order) for table in (ledger.writers, ledger.readers))
    groups, taken = [], set[str]()
    for number, ((_, chosen), members) in enumerate(families.items()):
        at = [sites[i] for i in np.frombuffer(chosen, np.int64)]
        placed = tuple(sorted(at, key=lambda s: order[s.module]))
        base = name = (wrote.get(number) or [placed[0].module])[0]
        while name in taken:
            name = f"{base}#{len(taken)}"
        taken.add(name)
        writers, readers = tuple(wrote.get(number, ())), tuple(read.get(number, ()))
        groups.append(ChannelGroup(name, np.concatenate(members), writers, readers, placed))
    return sorted(groups, key=lambda g: order[g.writers[0]] if g.writers else len(order))


def _gated(ledger: Ledger, root: Ids, free: Flags, sites: list[Site]) -> tuple[Ids, _Rows]:
    """The components that gates make zero where it matters, and the numbers of these gates' sites."""
    number = {site: i for i, site in enumerate(sites)}
    mark, with_site = np.zeros(ledger.count, bool), []
    for units, needs in ledger.needed:
        components = root[units]
        components = components[free[components]]
        for site in needs:
            behind = root[ledger.gates[site][0]]
            mark[behind] = True
            with_site.append(components[mark[components]] * len(sites) + number[site])
            mark[behind] = False
    pairs = _distinct(np.concatenate([np.zeros(0, np.int64), *with_site]))
    owners = pairs // max(len(sites), 1)
    components = np.unique(owners)
    return components, _Rows(owners, pairs % max(len(sites), 1), components)


def _slots_of(ledger: Ledger, root: Ids, components: Ids) -> _Rows:
    """For each component the numbers of the parameter axes it lives on."""
    count = max(len(ledger.slots), 1)
    units = np.concatenate([np.zeros(0, np.int64), *(u for _, _, u in ledger.slots)])
    numbers = np.repeat(np.arange(len(ledger.slots)), [len(u) for _, _, u in ledger.slots])
    wanted = np.zeros(ledger.count, bool)
    wanted[components] = True
    wanted = wanted[root[units]]
    pairs = _distinct(root[units[wanted]] * count + numbers[wanted])
    return _Rows(pairs // count, pairs % count, components)


def _distinct(numbers: Ids) -> Ids:
    """Sorted, each once; for long arrays quicker than ``np.unique``, since they consist of parts that are sorted."""
    ordered: Ids = np.sort(numbers, kind="stable")
    first: Flags = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    distinct: Ids = ordered[first]
    return distinct


def _modules_of(table: dict[str, Ids], root: Ids, owner: Ids, order: dict[str, int]) -> dict[int, list[str]]:
    """Group number -> the modules whose channels belong to it, in the model's order."""
    modules: dict[int, list[str]] = {}
    for module in sorted(table, key=lambda name: order[name]):
        for number in np.unique(owner[root[table[module]]]):
            if number >= 0:
                modules.setdefault(int(number), []).append(module)
    return modules


def _refusals(ledger: Ledger, root: Ids, pins: Ids, groups: list[ChannelGroup]) -> dict[str, str]:
    grouped = {w for g in groups for w in g.writers}
    refused = {}
    for module, units in ledger.writers.items():
        if module not in grouped:
            given = [int(pins[c]) for c in np.unique(root[units]) if pins[c] >= 0 and c != FIXED]
            refused[module] = ledger.pins[given[0]][1] if given else "its output is never read by another layer"
    return refused
