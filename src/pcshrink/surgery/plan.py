"""A plan: pure data that says what stays, for every tensor and every attribute. Printable, JSON, replayable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pcshrink.coupling.groups import Coupling
from pcshrink.coupling.units import Flags, Ids, Site
from pcshrink.errors import PlanMismatchError
from pcshrink.surgery.gate import Gate, GateSpec, gate_class

SCHEMA = 2  # 1 had gates of one kind only; it is still read


@dataclass(frozen=True)
class PrunePlan:
    """What stays of a model.

    Attributes:
        groups: Group name -> the channel numbers it keeps.
        sizes: Group name -> how many channels it had.
        tensors: Parameter or buffer name -> axis -> the indices kept on it; what is not named stays whole.
        shapes: The shape of each of those tensors before the cut.
        attributes: Module name -> attribute -> its value after the cut.
        gates: The gates of the compact model.
    """

    groups: dict[str, list[int]]
    sizes: dict[str, int]
    tensors: dict[str, dict[int, list[int]]]
    shapes: dict[str, list[int]]
    attributes: dict[str, dict[str, int | float]]
    gates: tuple[GateSpec, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; index lists are written as ranges ("0-3,7")."""
        return {
            "schema": SCHEMA,
            "groups": {n: {"of": self.sizes[n], "keep": _to_ranges(k)} for n, k in self.groups.items()},
            "tensors": {
                n: {"shape": self.shapes[n], "keep": {str(a): _to_ranges(k) for a, k in axes.items()}}
                for n, axes in self.tensors.items()
            },
            "attributes": self.attributes,
            "gates": [g.to_dict() for g in self.gates],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrunePlan:
        """Read back what ``to_dict`` wrote.

        Raises:
            PlanMismatchError: The data is not a plan, or from a newer version.
        """
        if not isinstance(data, Mapping):
            message = f"a plan is read from a mapping, got {type(data).__name__}"
            raise PlanMismatchError(message)
        if data.get("schema") not in (1, SCHEMA):
            schema = data.get("schema")
            message = f"not a plan of schema 1 to {SCHEMA}: schema is {schema!r}; update pcshrink or make it again"
            raise PlanMismatchError(message)
        try:
            plan = cls(
                groups={n: _from_ranges(g["keep"]) for n, g in data["groups"].items()},
                sizes={n: int(g["of"]) for n, g in data["groups"].items()},
                tensors={
                    n: {int(a): _from_ranges(k) for a, k in t["keep"].items()} for n, t in data["tensors"].items()
                },
                shapes={n: [int(s) for s in t["shape"]] for n, t in data["tensors"].items()},
                attributes={m: {str(k): _as_number(v) for k, v in a.items()} for m, a in data["attributes"].items()},
                gates=tuple(GateSpec.from_dict(g) for g in data["gates"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"damaged plan: {type(error).__name__}: {error}"
            raise PlanMismatchError(message) from error
        for name, kept in plan.groups.items():
            if kept and not 0 <= min(kept) <= max(kept) < plan.sizes[name]:
                message = f"damaged plan: group {name!r} has {plan.sizes[name]} channels and cannot keep {max(kept)}"
                raise PlanMismatchError(message)
        return plan

    def passing(self, spec: GateSpec) -> list[int]:
        """Which own channels a gate lets pass."""
        return self.tensors[spec.prefix + "mask"][0]

    def restrict(self, spec: GateSpec, gate: Gate) -> None:
        """Let a gate pass only the own channels that stay, and read only the fed ones that do."""
        fed = [(leaf, axis) for leaf, roles in gate.AXES.items() for axis, role in roles.items() if role == "fed"]
        read = [self.tensors.get(spec.prefix + leaf, {}).get(axis, []) for leaf, axis in fed]
        gate.restrict(self.passing(spec), next(iter(read), []))  # all of a gate's tensors keep the same

    def to_json(self) -> str:
        """The plan as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def from_json(cls, text: str) -> PrunePlan:
        """Read a plan from JSON text."""
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, TypeError) as error:
            message = f"a plan must be JSON text: {error}"
            raise PlanMismatchError(message) from error
        if not isinstance(data, dict):
            message = f"a plan must be a JSON object, got {type(data).__name__}"
            raise PlanMismatchError(message)
        return cls.from_dict(data)

    def shape_after(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that a tensor of this name and shape has after the cut."""
        cuts = self.tensors.get(name, {})
        return tuple(len(cuts[axis]) if axis in cuts else size for axis, size in enumerate(shape))

    def __str__(self) -> str:
        """One line for each group."""
        rows = [f"{name}: {len(kept)} of {self.sizes[name]} channels stay" for name, kept in self.groups.items()]
        return "\n".join(rows)


def _as_number(value: Any) -> int | float:
    return value if isinstance(value, float) else int(value)


def _to_ranges(kept: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for index in kept:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _from_ranges(text: str) -> list[int]:
    kept: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        if len(first) > 9 or len(last) > 9 or int(last or first) - int(first) > 10_000_000:
            message = f"absurd index range {run!r}"
            raise ValueError(message)
        kept += range(int(first), int(last or first) + 1)
    return kept


class GateSite(NamedTuple):
    """A gate: how it is built, the units of its own channels, and those of the channels fed to it."""

    spec: GateSpec
    own: Ids
    fed: Ids


def gate_sites(coupling: Coupling) -> dict[Site, GateSite]:
    """The gates that the groups need, as plain masks; a method makes its own kind of them."""
    sites = {}
    for site in dict.fromkeys(s for group in coupling.groups for s in group.sites):
        units, axis, origin = coupling.ledger.gates[site]
        distinct = units[np.sort(np.unique(units, return_index=True)[1])]
        repeat = len(units) // len(distinct)
        if not np.array_equal(np.repeat(distinct, repeat), units):
            distinct, repeat = units, 1
        spec = GateSpec(
            module=site.module, at_input=site.at_input, axis=axis, channels=len(distinct), repeat=repeat,
            source=origin.module, source_axis=origin.axis, in_features=len(origin.units),
        )  # fmt: skip
        sites[site] = GateSite(spec, distinct, origin.units)
    return sites


def make_plan(
    coupling: Coupling,
    shapes: Mapping[str, Sequence[int]],
    gates: Mapping[Site, GateSite],
    keep: Mapping[str, Flags],
) -> PrunePlan:
    """Work out what stays everywhere when the groups keep these channels.

    Args:
        coupling: The groups.
        shapes: The shape of every parameter and buffer of the model.
        gates: The gates on the model, or those it would need.
        keep: Group name -> which channels stay; groups not named stay whole.
    """
    alive = coupling.alive(dict(keep))
    tensors: dict[str, dict[int, list[int]]] = {}
    for name, axis, units in coupling.ledger.slots:
        if not alive[units].all():
            tensors.setdefault(name, {})[axis] = np.flatnonzero(alive[units]).tolist()
    attributes: dict[str, dict[str, int | float]] = {}
    for fix in coupling.ledger.fixes:
        if not alive[fix.units].all():
            attributes.setdefault(fix.module, {})[fix.attribute] = fix.value(int(alive[fix.units].sum()))
    compact_specs: list[GateSpec] = []
    gate_shapes: dict[str, list[int]] = {}
    for spec, own_units, fed_units in gates.values():
        kept = {"own": np.flatnonzero(alive[own_units]).tolist(), "fed": np.flatnonzero(alive[fed_units]).tolist()}
        compact_specs.append(spec.resized(len(kept["own"]), len(kept["fed"])))
        kind = gate_class(spec.kind)
        for leaf, roles in kind.AXES.items():
            tensors[spec.prefix + leaf] = {axis: kept[role] for axis, role in roles.items()}
        gate_shapes |= {spec.prefix + leaf: shape for leaf, shape in kind.shapes(spec).items()}
    return PrunePlan(
        groups={g.name: np.flatnonzero(keep.get(g.name, np.ones(g.channels, bool))).tolist() for g in coupling.groups},
        sizes={g.name: g.channels for g in coupling.groups},
        tensors=tensors,
        shapes={n: gate_shapes.get(n) or [int(s) for s in shapes[n]] for n in tensors},
        attributes=attributes,
        gates=tuple(compact_specs),
    )


def require_plan(plan: object) -> PrunePlan:
    """Give a plan back, and refuse what is none.

    Raises:
        PlanMismatchError: It is something else.
    """
    if not isinstance(plan, PrunePlan):
        message = f"a plan is what shrinker.plan() or PrunePlan.from_json(text) gives, got {type(plan).__name__}"
        raise PlanMismatchError(message)
    return plan
