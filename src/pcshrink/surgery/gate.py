"""The gate: sits on a layer and decides what of each channel passes. Methods bring their own kinds.

Plans, masks, saved files and costs know gates only by what is declared here: where a gate sits, which axes of its
tensors count the layer's *own* channels and which the channels *fed* to it, and what it would be as a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from pcshrink.errors import ConfigError
from pcshrink.surgery.product import times

GATE = "pcs_gate"  # the name of a gate as a child of the layer it sits on
FIRST_KIND = "salience"  # of all gates in files of schema 1
Role = Literal["own", "fed"]
Axes = Mapping[str, Mapping[int, Role]]

_KINDS: dict[str, type[Gate]] = {}


@dataclass(frozen=True)
class GateSpec:
    """Where a gate sits and how large it is; enough to build it again.

    Attributes:
        module: The layer whose output (or first input) passes the gate.
        at_input: The gate sits at the first input instead of the output.
        axis: The channel axis of what passes.
        channels: Number of channels that are decided on.
        repeat: How many neighbouring indices of the axis share a decision (the size of an attention head).
        source: The layer whose input the gate may read.
        source_axis: The channel axis of that input.
        in_features: Its channels.
        kind: Which class of gate it is.
        settings: Sizes and switches of that class.
    """

    module: str
    at_input: bool
    axis: int
    channels: int
    repeat: int
    source: str
    source_axis: int
    in_features: int
    kind: str = "mask"
    settings: Mapping[str, int | bool | float] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """What the names of the gate's tensors begin with."""
        return f"{self.module}.{GATE}." if self.module else f"{GATE}."

    def __deepcopy__(self, memo: dict[int, object]) -> GateSpec:
        """Nothing changes it, so copies of a gate share it."""
        return self

    def size(self, role: Role) -> int:
        """How many own or fed channels there are."""
        return self.channels if role == "own" else self.in_features

    def resized(self, own: int, fed: int) -> GateSpec:
        """The same gate for other numbers of channels."""
        return replace(self, channels=own, in_features=fed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GateSpec:
        """Read ``to_dict``, or the form that files of schema 1 have: one kind, its settings beside all else."""
        if "kind" in data:
            return cls(**data)
        known = {own.name for own in fields(cls)}
        settings = {name: value for name, value in data.items() if name not in known}
        place = {name: value for name, value in data.items() if name in known}
        return cls(**place, kind=FIRST_KIND, settings=settings)


class Gate(nn.Module):
    """Lets everything pass, or only what a mask keeps. Lives as a child of its layer and works through hooks.

    A kind of its own inherits from this, names itself, and declares its tensors::

        class Scaling(Gate, kind="scaling"):
            AXES = Gate.AXES | {"scale": {0: "own"}}

    Attributes:
        AXES: For each tensor the axes that count own or fed channels; other axes are never cut.
        SWITCHES: Attributes that are part of a saved network although they are not tensors.
        READS_INPUT: The gate reads its source's input, averaged over everything but batch and channels.
        MASK_ONLY: The gate only ever lets channels pass or not, alike for all inputs, so nothing is left for it to do
            once they are cut; a kind of its own says so by ``mask_only=True``.
        TELLS: What its listener hears: the factor that the channels are multiplied by, or which share of its layer's
            multiply-adds had to run, (B, ...).
        FOLDS: It can be replaced by its constant.
        DECAYED: Weight decay acts on its matrices.
        spec: Where it sits.
        masked: Let only the channels of ``mask`` pass.
        listener: Is told every factor, to measure with.
        stand_in: Decides instead of the gate, to measure with; what it gives is multiplied, None lets everything pass.
    """

    kind: ClassVar[str] = "mask"
    AXES: ClassVar[Axes] = {"mask": {0: "own"}}
    SWITCHES: ClassVar[tuple[str, ...]] = ("masked",)
    READS_INPUT: ClassVar[bool] = False
    MASK_ONLY: ClassVar[bool] = True
    TELLS: ClassVar[Literal["factor", "work"]] = "factor"
    FOLDS: ClassVar[bool] = True
    DECAYED: ClassVar[bool] = True

    mask: Tensor

    def __init_subclass__(cls, kind: str = "", mask_only: bool = False, **options: object) -> None:
        """Make a kind known by its name."""
        super().__init_subclass__(**options)
        cls.MASK_ONLY = mask_only
        if kind:
            cls.kind = kind
            _KINDS[kind] = cls

    def __init__(self, spec: GateSpec) -> None:
        super().__init__()
        self.spec = spec
        self.masked = False
        self.listener: Callable[[Tensor], None] | None = None
        self.stand_in: Callable[[], Tensor | None] | None = None
        self.register_buffer("mask", torch.ones(spec.channels))

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled; a kind leaves out what belongs to one forward pass."""
        return dict(self.__dict__)

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        """The shape of each tensor that has own or fed channels."""
        return {"mask": [spec.channels]}

    @classmethod
    def costs(cls, spec: GateSpec) -> dict[Role, dict[str, float]]:
        """What each own and each fed channel costs in the gate itself: params, madds and mem_access."""
        return {}

    def connect(self, layer: nn.Module, source: nn.Module) -> None:
        """Hook the gate to the layer it sits on and to the one whose input it may read."""
        if self.spec.at_input:
            layer.register_forward_pre_hook(self.pass_input, with_kwargs=True)
        else:
            layer.register_forward_hook(self.pass_output)

    def disconnect(self, layer: nn.Module) -> None:
        """Undo what ``connect`` did besides hooks, which are taken off for all gates at once."""

    def factor(self, x: Tensor) -> Tensor | None:
        """What x is multiplied by: (C,), (B, C), or as many axes as x has; None lets everything pass."""
        return self.mask if self.masked else None

    def constant(self) -> Tensor:
        """What the gate would multiply by as a constant (C,), for folding it into its layer."""
        return self.mask.clone() if self.masked else torch.ones_like(self.mask)

    def hold(self, constant: bool) -> Any:
        """Multiply by the constant from now on, or no longer; gives back what undoes it."""
        return None

    def unhold(self, before: Any) -> None:
        """Undo ``hold``."""

    def restrict(self, own: list[int], fed: list[int]) -> None:
        """Let only these channels pass, and read only these inputs."""
        with torch.no_grad():
            self.mask.zero_()
            self.mask[own] = 1
        self.masked = True

    def restrictions(self) -> tuple[Any, ...]:
        """What ``restore`` needs to undo a ``restrict``."""
        return self.mask.clone(), self.masked

    def restore(self, before: tuple[Any, ...]) -> None:
        """Undo ``restrict``."""
        self.mask.copy_(before[0])
        self.masked = before[1]

    def resize_(self, spec: GateSpec) -> None:
        """After its tensors were cut: be the gate of this size."""
        self.spec = spec
        self.masked = self.masked and not self.lets_all_pass()  # what the mask closed may be gone by now

    def lets_all_pass(self) -> bool:
        """Whether its mask closes nothing."""
        return bool(self.mask.all())

    def start_pass(self) -> None:
        """A training forward pass of the whole model begins."""

    def pass_output(self, module: nn.Module, args: tuple[object, ...], out: Tensor) -> Tensor:
        """Hook after the gated layer."""
        return self.multiply(out)

    def pass_input(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Hook before the gated layer, for gates at its input."""
        if args:
            return (self.multiply(args[0]), *args[1:]), kwargs
        name = next(k for k, v in kwargs.items() if isinstance(v, Tensor))
        return args, kwargs | {name: self.multiply(kwargs[name])}

    def multiply(self, x: Tensor) -> Tensor:
        """Multiply every channel by its factor."""
        factor = self.factor(x) if self.stand_in is None else self.stand_in()
        self.tell(torch.ones_like(self.mask) if factor is None else factor)
        if factor is None:
            return x
        if factor.ndim == x.ndim > 2:
            return x * factor.to(x.dtype)
        if self.spec.repeat > 1:
            factor = factor.repeat_interleave(self.spec.repeat, dim=-1)
        if self.spec.axis == 1:
            return times(x, factor if factor.ndim > 1 else factor[None])
        factor = factor.to(x.dtype)
        shape = [1] * x.ndim
        if factor.ndim > 1:
            shape[0] = x.shape[0]
        shape[self.spec.axis] = factor.shape[-1]
        return x * factor.reshape(shape)

    def tell(self, what: Tensor) -> None:
        """Let a listener know."""
        if self.listener is not None:
            self.listener(what)


_KINDS[Gate.kind] = Gate


def gate_class(kind: str) -> type[Gate]:
    """The class of a kind of gate that is known by now; see ``pcshrink.methods.registry`` for the built-in ones.

    Raises:
        ConfigError: There is no such kind.
    """
    if kind not in _KINDS:
        message = f"no gate is called {kind!r}; known are {', '.join(sorted(_KINDS))}"
        raise ConfigError(message)
    return _KINDS[kind]


class BoundForward:
    """Stands in for the forward pass of one module. Unlike a bound method it can be pickled and copied with it."""

    def __init__(self, module: nn.Module, function: Any) -> None:
        self.module, self.function = module, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the module's own forward pass."""
        return self.function(self.module, *args, **kwargs)
