"""The gate: multiplies a layer's output by its salience and keeps the running salience."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.methods.pcs.generator import SalienceGenerator, pool
from pcshrink.methods.pcs.kernels import Tap, can_fuse, can_tap, gated_batch_norm


@dataclass(frozen=True)
class GateSpec:
    """Where a gate sits and how large it is; enough to build it again.

    Attributes:
        module: The layer whose output (or first input) is scaled.
        at_input: Scale the first input instead of the output.
        axis: The channel axis of what is scaled.
        channels: Number of saliences.
        repeat: How many neighbouring indices of the axis share a salience (the size of an attention head).
        source: The layer whose input feeds the generator.
        source_axis: The channel axis of that input.
        in_features: Its channels.
        hidden: The generator's inner width.
        norm: Whether the generator has a BatchNorm1d.
    """

    module: str
    at_input: bool
    axis: int
    channels: int
    repeat: int
    source: str
    source_axis: int
    in_features: int
    hidden: int
    norm: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


class Gate(nn.Module):
    """Lives as a child ``pcs_gate`` of the layer it scales, and works through hooks, so no other name changes."""

    running: Tensor
    mask: Tensor
    input_mask: Tensor

    def __init__(self, spec: GateSpec, init_salience: float = 0.9) -> None:
        super().__init__()
        self.spec = spec
        self.generator = SalienceGenerator(spec.in_features, spec.channels, spec.hidden, init_salience, norm=spec.norm)
        self.register_buffer("running", torch.full((spec.channels,), float(init_salience)))
        self.register_buffer("mask", torch.ones(spec.channels))
        self.register_buffer("input_mask", torch.ones(spec.in_features))
        self.masked = False  # multiply by the mask
        self.blend = 0.0  # share of the running salience in what is multiplied: 0 = s(x), 1 = constant
        self.truncated: int | None = None  # the ablation: so many lowest entries are cut in the forward pass
        self.scaled_by_norm = False
        self.pooled: Tensor | None = None
        self.recorded: tuple[Tensor, ...] = ()  # saliences of the newest training forward pass
        self.pending: list[Tensor] = []  # batch means not yet in the running salience

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one forward pass: recorded graphs can be neither copied nor pickled."""
        return self.__dict__ | {"recorded": (), "pending": [], "pooled": None}

    def observe(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Hook before the source layer: pool what it is fed."""
        x = _first_tensor(args, kwargs)
        if args and args[0] is x and can_tap(module, x, self.spec.source_axis):
            x, self.pooled = Tap.apply(x)
            return (x, *args[1:]), kwargs
        self.pooled = pool(x, self.spec.source_axis)
        return None

    def scale_output(self, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
        """Hook after the gated layer."""
        return out if self.scaled_by_norm else self._scale(out)

    def scale_input(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Hook before the gated layer, for gates at its input."""
        if args:
            return (self._scale(args[0]), *args[1:]), kwargs
        name = next(k for k, v in kwargs.items() if isinstance(v, Tensor))
        return args, kwargs | {name: self._scale(kwargs[name])}

    def salience(self, pooled: Tensor) -> Tensor:
        """What the channels are multiplied by: (B, C_in) -> (B, C)."""
        if self.masked:
            pooled = pooled * self.input_mask.to(pooled.dtype)
        raw: Tensor = self.generator(pooled)
        if self.training and raw.shape[0]:
            self.recorded = (*self.recorded, raw)
        salience = raw
        if self.truncated and not self.masked:
            cut = salience.topk(self.truncated, dim=-1, largest=False).indices
            salience = salience.scatter(-1, cut, 0.0)
        if self.blend:
            salience = torch.lerp(salience, self.running.to(salience.dtype).expand_as(salience), self.blend)
        return salience * self.mask.to(salience.dtype) if self.masked else salience

    def normalise(self, norm: nn.BatchNorm2d, x: Tensor) -> Tensor | None:
        """The gated norm in one step where that is possible; ``scale_output`` then has nothing left to do."""
        self.scaled_by_norm = self.spec.repeat == 1 and can_fuse(norm, x)
        return gated_batch_norm(norm, x, self._current()) if self.scaled_by_norm else None

    def _current(self) -> Tensor:
        if self.pooled is None:
            message = f"the layer {self.spec.source!r} did not run before {self.spec.module!r}, whose gate it feeds"
            raise RuntimeError(message)
        return self.salience(self.pooled)

    def _scale(self, x: Tensor) -> Tensor:
        salience = self._current().to(x.dtype)
        if self.spec.repeat > 1:
            salience = salience.repeat_interleave(self.spec.repeat, dim=-1)
        shape = [x.shape[0]] + [1] * (x.ndim - 1)
        shape[self.spec.axis] = salience.shape[-1]
        return x * salience.reshape(shape)

    def start_record(self) -> None:
        """Put what was recorded so far aside for the running salience; a new forward pass begins."""
        if self.recorded:
            self.pending += [salience.detach().mean(dim=0) for salience in self.recorded]
            self.recorded = ()

    def batch_mean(self) -> Tensor | None:
        """The mean salience (C,) over all that was recorded since the last call."""
        self.start_record()
        mean = torch.stack(self.pending).mean(dim=0) if self.pending else None
        self.pending = []
        return mean


def _first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return next(v for v in (*args, *kwargs.values()) if isinstance(v, Tensor))
