"""Two plans one after the other as one plan for the original model."""

from __future__ import annotations

from dataclasses import replace

from pcshrink.surgery.plan import PrunePlan


def compose(first: PrunePlan, second: PrunePlan) -> PrunePlan:
    """The plan that does at once what ``second`` does to the model that ``first`` leaves.

    Args:
        first: A plan for the original model.
        second: A plan for the compact model that ``first`` gives.
    """
    tensors = {name: dict(axes) for name, axes in first.tensors.items()}
    for name, axes in second.tensors.items():
        own = tensors.setdefault(name, {})
        for axis, kept in axes.items():
            own[axis] = [own[axis][i] for i in kept] if axis in own else list(kept)
    attributes = {module: dict(values) for module, values in first.attributes.items()}
    for module, values in second.attributes.items():
        attributes.setdefault(module, {}).update(values)
    groups = dict(first.groups)
    for name, kept in second.groups.items():
        groups[name] = [first.groups[name][i] for i in kept] if name in first.groups else list(kept)
    gates = {spec.module: spec for spec in first.gates} | {spec.module: spec for spec in second.gates}
    return replace(
        first,
        groups=groups,
        sizes=second.sizes | first.sizes,
        tensors=tensors,
        shapes=second.shapes | first.shapes,
        attributes=attributes,
        gates=tuple(gates.values()),
    )
