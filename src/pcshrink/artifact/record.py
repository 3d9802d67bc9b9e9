"""What ``pcshrink.json`` holds, written and read back with every field checked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pcshrink.artifact.store import WEIGHTS, sha256
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import CheckpointError, PlanMismatchError
from pcshrink.surgery.gate import GateSpec
from pcshrink.surgery.plan import PrunePlan

SCHEMA = 2  # 1 had gates of one kind only; it is still read
HEAD = b'{\n "sha256": "'
MOST_INDICES = 20_000_000
LARGEST_AXIS = 1 << 24


@dataclass(frozen=True, kw_only=True)
class GateState:
    """A gate as it was: where it sits, and those of its attributes that matter besides its tensors."""

    spec: GateSpec
    switches: dict[str, bool | int | float | None]


@dataclass(frozen=True, kw_only=True)
class ScaleState:
    """A constant gate that could not be folded into weights."""

    module: str
    axis: int
    at_input: bool


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Everything about a saved model but its weights.

    Attributes:
        plan: What stays of the full-size network; None for a network that was not cut.
        compact: The weights are those of the compact model; False: of the gated full-size one.
        builder: How the full-size network is made, for example ``timm:resnet18``; None: the user brings it.
        builder_args: Arguments for the builder.
        model_class: The class the model had, for messages.
        input_shape: One input sample, without the batch axis.
        metrics: Whatever the saver wanted to keep: errors, madds, latencies.
        versions: Library versions at the time of saving.
        tied: Tensor name -> the name it shares its values with.
        volatile: Buffers that a state_dict would leave out.
        frozen: Parameters that do not require gradients.
        gates: The gates on the model.
        scales: The constant scales on a folded model.
        preprocessing: How images become its input, and what its outputs are called; None where nobody said.
        prepared: Which method made layers of its own out of the network's, and with which settings; None if none did.
        weights_bytes: Size of the weights file.
        weights_sha256: Its hash.
    """

    plan: PrunePlan | None
    compact: bool
    builder: str | None
    builder_args: dict[str, Any]
    model_class: str
    input_shape: tuple[int, ...] | None
    metrics: dict[str, Any]
    versions: dict[str, str]
    tied: dict[str, str]
    volatile: tuple[str, ...]
    frozen: tuple[str, ...]
    gates: tuple[GateState, ...]
    scales: tuple[ScaleState, ...]
    preprocessing: Preprocessing | None = None
    prepared: dict[str, Any] | None = None
    weights_bytes: int = 0
    weights_sha256: str = field(default="")

    def to_bytes(self) -> bytes:
        """The file's content; its own hash comes first and covers everything after it."""
        content = {
            "format": "pcshrink",
            "schema": SCHEMA,
            "weights": {"file": WEIGHTS, "bytes": self.weights_bytes, "sha256": self.weights_sha256},
            "builder": self.builder,
            "builder_args": self.builder_args,
            "model_class": self.model_class,
            "input_shape": self.input_shape,
            "preprocessing": self.preprocessing.to_dict() if self.preprocessing else None,
            "metrics": self.metrics,
            "versions": self.versions,
            "compact": self.compact,
            "tied": self.tied,
            "volatile": self.volatile,
            "frozen": self.frozen,
            "gates": [{"spec": gate.spec.to_dict(), "switches": gate.switches} for gate in self.gates],
            "scales": [asdict(scale) for scale in self.scales],
            "prepared": self.prepared,
            "plan": self.plan.to_dict() if self.plan else None,
        }
        body = b'",' + json.dumps(content, indent=1, allow_nan=False).encode()[1:] + b"\n"
        return HEAD + sha256(body).encode() + body

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Artifact:
        """Read what ``to_bytes`` wrote.

        Args:
            data: The file's content.
            name: The file's path, for messages.

        Raises:
            CheckpointError: It is damaged, hostile, or from a newer version.
        """
        try:
            content = json.loads(data)
        except (ValueError, RecursionError, MemoryError) as error:
            message = f"{name} is damaged: {type(error).__name__}: {str(error)[:200]}"
            raise CheckpointError(message) from error
        if not isinstance(content, dict) or content.get("format") != "pcshrink":
            message = f"{name} is damaged or was not written by pcshrink: there is no format entry"
            raise CheckpointError(message)
        schema = content.get("schema")
        if type(schema) is int and schema > SCHEMA:
            message = f"{name} has schema {schema}, this pcshrink reads up to {SCHEMA}; update pcshrink"
            raise CheckpointError(message)
        body = data[len(HEAD) + 64 :]
        if data[: len(HEAD)] != HEAD or data[len(HEAD) : len(HEAD) + 64] != sha256(body).encode():
            message = f"{name} is damaged: its content does not have the hash it states"
            raise CheckpointError(message)
        try:
            return _parse(content)
        except Exception as error:  # a hostile record: whatever reading it raises means that it is not usable
            message = f"{name} is damaged: {type(error).__name__}: {str(error)[:300]}"
            raise CheckpointError(message) from error


def _parse(content: Mapping[str, Any]) -> Artifact:
    if content["schema"] not in (1, SCHEMA):
        message = f"schema is {content['schema']!r}, known are 1 to {SCHEMA}"
        raise ValueError(message)
    weights = content["weights"]
    if weights["file"] != WEIGHTS:
        message = f"the weights must be in {WEIGHTS}, not in {str(weights['file'])[:80]!r}"
        raise ValueError(message)
    shape, seen = content["input_shape"], content.get("preprocessing")
    return Artifact(
        plan=_plan(content["plan"]),
        compact=_of(bool, content["compact"]),
        builder=None if content["builder"] is None else _of(str, content["builder"]),
        builder_args=_mapping(content["builder_args"], lambda value: value),
        model_class=_of(str, content["model_class"]),
        input_shape=None if shape is None else tuple(_axis(n) for n in _of(list, shape)),
        preprocessing=None if seen is None else Preprocessing.from_dict(_of(dict, seen)),
        metrics=_mapping(content["metrics"], lambda value: value),
        versions=_mapping(content["versions"], lambda value: _of(str, value)),
        tied=_mapping(content["tied"], lambda value: _of(str, value)),
        volatile=tuple(_of(str, n) for n in _of(list, content["volatile"])),
        frozen=tuple(_of(str, n) for n in _of(list, content["frozen"])),
        gates=tuple(_gate(g) for g in _of(list, content["gates"])),
        scales=tuple(
            ScaleState(module=_of(str, s["module"]), axis=_of(int, s["axis"]), at_input=_of(bool, s["at_input"]))
            for s in _of(list, content["scales"])
        ),
        prepared=_prepared(content.get("prepared")),
        weights_bytes=_of(int, weights["bytes"]),
        weights_sha256=_of(str, weights["sha256"]),
    )


def _of(kind: type[Any], value: object) -> Any:
    if type(value) is not kind:
        message = f"expected {kind.__name__}, got {str(value)[:80]!r}"
        raise TypeError(message)
    return value


def _axis(value: Any) -> int:
    if not 0 < _of(int, value) <= LARGEST_AXIS:
        message = f"absurd size {value}"
        raise ValueError(message)
    return int(value)


def _mapping(value: object, read: Callable[[Any], Any]) -> dict[str, Any]:
    return {_of(str, key): read(item) for key, item in _of(dict, value).items()}


def _gate(data: Mapping[str, Any]) -> GateState:
    spec = GateSpec.from_dict(data["spec"])
    for name in ("channels", "repeat", "in_features"):
        _axis(getattr(spec, name))
    for name in ("axis", "source_axis"):
        _of(int, getattr(spec, name))
    _of(bool, spec.at_input)
    for name in ("module", "source", "kind"):
        _of(str, getattr(spec, name))
    settings = _mapping(spec.settings, _setting)
    switches = data["switches"] if "switches" in data else {k: v for k, v in data.items() if k != "spec"}
    return GateState(spec=dataclasses.replace(spec, settings=settings), switches=_mapping(switches, _setting))


def _prepared(data: Any) -> dict[str, Any] | None:
    if data is None:
        return None
    settings = _mapping(data["settings"], lambda value: value)
    return {"method": _of(str, data["method"]), "settings": settings}


def _setting(value: Any) -> bool | int | float | None:
    if value is not None and type(value) not in (bool, int, float):
        message = f"expected a number or a truth value, got {str(value)[:80]!r}"
        raise TypeError(message)
    if type(value) is int and not -LARGEST_AXIS <= value <= LARGEST_AXIS:
        message = f"absurd number {value}"
        raise ValueError(message)
    plain: bool | int | float | None = value
    return plain


def _plan(data: Any) -> PrunePlan | None:
    """The plan, after counting what its ranges would grow to."""
    if data is None:
        return None
    texts = [group["keep"] for group in data["groups"].values()]
    texts += [text for tensor in data["tensors"].values() for text in tensor["keep"].values()]
    total = 0
    for text in texts:
        for run in filter(None, _of(str, text).split(",")):
            first, _, last = run.partition("-")
            if len(first) > 9 or len(last) > 9:
                message = f"absurd index range {run[:40]!r}"
                raise ValueError(message)
            total += abs(int(last or first) - int(first)) + 1
    if total > MOST_INDICES:
        message = f"absurd plan: it would list {total} indices"
        raise ValueError(message)
    try:
        return PrunePlan.from_dict(data)
    except PlanMismatchError as error:
        raise ValueError(str(error)) from error
