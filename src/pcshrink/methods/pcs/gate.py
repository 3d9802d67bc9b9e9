"""The salience gate: multiplies a layer's output by its salience and keeps the running salience."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pcshrink.methods.pcs.generator import SalienceGenerator
from pcshrink.methods.pcs.images import exports_images, generate_for_images, pool_images
from pcshrink.methods.pcs.kernels import NORMS, Tap, can_fuse, can_tap, gated_batch_norm, generated_batch_norm
from pcshrink.methods.reading import ReadingGate
from pcshrink.surgery.gate import GATE, Axes, BoundForward, GateSpec, Role

REOPENED = 0.05  # above 0 the hard sigmoid has a gradient again


class _PassOfThread(threading.local):
    """What belongs to one forward pass of one thread: the gates that have done their work within the norm."""

    def __init__(self) -> None:
        self.scaled: weakref.WeakSet[SalienceGate] = weakref.WeakSet()


class SalienceGate(ReadingGate, kind="salience"):
    """Scales every channel by the salience that a small generator reads off the layer's input.

    Attributes:
        running: The running salience (C,).
        blend: Share of the running salience in what is multiplied: 0 = s(x), 1 = constant.
        closing: A factor for each channel (C,) that brings the last of those pushed down to zero; in use if ``closes``.
        truncated: Cut so many lowest entries of each sample in the forward pass (the ablation).
        recorded: What a penalty takes hold of in the newest training forward pass: the saliences, above 1 as they would
            be without a bound.
    """

    AXES: ClassVar[Axes] = {
        "generator.fc1.weight": {1: "fed"},
        "generator.fc2.weight": {0: "own"},
        "generator.fc2.bias": {0: "own"},
        "running": {0: "own"},
        "closing": {0: "own"},
        "mask": {0: "own"},
        "input_mask": {0: "fed"},
    }
    SWITCHES: ClassVar[tuple[str, ...]] = ("masked", "blend", "truncated", "closes")

    running: Tensor
    closing: Tensor
    input_mask: Tensor

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        hidden, norm = int(spec.settings["hidden"]), bool(spec.settings["norm"])
        self.generator = SalienceGenerator(spec.in_features, spec.channels, hidden, norm=norm)
        self.register_buffer("running", torch.ones(spec.channels))
        self.register_buffer("closing", torch.ones(spec.channels))
        self.register_buffer("input_mask", torch.ones(spec.in_features))
        self.closes = False
        # A tensor, because compiled code would be compiled anew for every new number; always on the CPU, where a
        # single value may stay whatever the gate is moved to.
        self._free_share = torch.ones((), device="cpu")
        self.blend = 0.0
        self.truncated: int | None = None
        self.recorded: tuple[Tensor, ...] = ()
        self.pending: list[Tensor] = []  # batch means not yet in the running salience

    @property
    def blend(self) -> float:
        """Share of the running salience in what is multiplied."""
        return self._blend

    @blend.setter
    def blend(self, share: float) -> None:
        self._blend, self.blends = share, share > 0
        self._free_share.fill_(1 - share)

    @classmethod
    def shapes(cls, spec: GateSpec) -> dict[str, list[int]]:
        """The shape of each tensor that has own or fed channels."""
        own, fed, hidden = spec.channels, spec.in_features, int(spec.settings["hidden"])
        return {
            "generator.fc1.weight": [hidden, fed],
            "generator.fc2.weight": [own, hidden],
            "generator.fc2.bias": [own],
            "running": [own],
            "closing": [own],
            "mask": [own],
            "input_mask": [fed],
        }

    @classmethod
    def costs(cls, spec: GateSpec) -> dict[Role, dict[str, float]]:
        """The generator's two layers."""
        wide = float(spec.settings["hidden"])
        each = {"params": wide, "madds": wide, "mem_access": wide}
        return {"fed": each, "own": each | {"params": wide + 1}}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one forward pass: recorded graphs can be neither copied nor pickled."""
        return super().__getstate__() | {"recorded": (), "pending": []}

    @torch.no_grad()
    def start_at(self, salience: float) -> None:
        """Let every salience start at this value."""
        self.running.fill_(salience)
        self.generator.start_at(salience)

    @torch.no_grad()
    def reopen(self, channels: Tensor) -> None:
        """Give channels that fell asleep a small salience that does not depend on the input yet."""
        self.generator.fc2.weight[channels] *= 0.1
        self.generator.fc2.bias[channels] = 6 * (REOPENED - 0.5)

    @torch.no_grad()
    def move(self, distance: Tensor) -> None:
        """Raise the saliences by this much (C,), in units of the hard sigmoid's input."""
        self.generator.fc2.bias.add_(distance.to(self.generator.fc2.bias))

    @torch.no_grad()
    def close(self, channels: Tensor, opening: float) -> None:
        """Multiply these channels (1 = this one) by what is left of the opening; at 0 they are dead for every input."""
        self.closes = True
        self.closing.copy_(1 - channels.to(self.closing) * (1 - opening))
        if opening == 0:
            self.running.mul_(1 - channels.to(self.running))

    def connect(self, layer: nn.Module, source: nn.Module) -> None:
        """Read the source's input; do norm and gate in one step where that is possible."""
        super().connect(layer, source)
        if type(layer) in NORMS and not self.spec.at_input:
            layer.forward = BoundForward(layer, _norm_forward)

    def disconnect(self, layer: nn.Module) -> None:
        """Give the norm its own forward pass back."""
        if getattr(vars(layer).get("forward"), "function", None) is _norm_forward:
            del layer.forward

    def resize_(self, spec: GateSpec) -> None:
        """After its tensors were cut: be the gate of this size."""
        super().resize_(spec)
        self.truncated = None  # the cut has been made
        self.generator.fc1.in_features, self.generator.fc2.out_features = spec.in_features, spec.channels

    def lets_all_pass(self) -> bool:
        """Whether its masks close neither own channels nor inputs."""
        return super().lets_all_pass() and bool(self.input_mask.all())

    def read(self, x: Tensor) -> Tensor:
        """The mean of each channel (B, C_in); in a file for images (B, C_in, 1, 1), where nothing else is asked for."""
        plain = self.training or self.masked or self.closes or self.blends or self.truncated or self.spec.repeat > 1
        if not plain and self.spec.axis == 1 and exports_images(x, self.spec.source_axis):
            return pool_images(x)
        return super().read(x)

    def observe(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Hook before the source layer: pool what it is fed."""
        x = next(v for v in (*args, *kwargs.values()) if isinstance(v, Tensor))
        if not (args and args[0] is x and can_tap(module, x, self.spec.source_axis)):
            return super().observe(module, args, kwargs)
        x, pooled = Tap.apply(x)
        self.keep_reading(pooled)
        return (x, *args[1:]), kwargs

    def pass_output(self, module: nn.Module, args: tuple[object, ...], out: Tensor) -> Tensor:
        """Hook after the gated layer, unless the norm has been gated in one step."""
        if not torch.compiler.is_compiling() and self in _NOW.scaled:
            _NOW.scaled.discard(self)
            return out
        return self.multiply(out)

    def factor(self, x: Tensor) -> Tensor:
        """The salience (B, C)."""
        pooled = self.reading()
        if pooled.ndim == x.ndim == 4:
            return generate_for_images(self.generator, pooled, x)
        return self.salience(pooled.flatten(1))

    def salience(self, pooled: Tensor) -> Tensor:
        """What the channels are multiplied by: (B, C_in) -> (B, C)."""
        if self.masked:
            pooled = pooled * self.input_mask.to(pooled.dtype)
        salience = self._recorded(pooled) if self.training and pooled.shape[0] else self.generator(pooled)
        if self.closes:
            salience = salience * self.closing.to(salience.dtype)
        if self.truncated and not self.masked:
            cut = salience.topk(self.truncated, dim=-1, largest=False).indices
            salience = salience.scatter(-1, cut, 0.0)
        if self.blends:
            running = self.running.to(salience.dtype)
            salience = running - self._free_share * (running - salience)
        return salience * self.mask.to(salience.dtype) if self.masked else salience

    def _recorded(self, pooled: Tensor) -> Tensor:
        salience, handle = self.generator.with_handle(pooled)
        self.recorded = (*self.recorded, handle * self.closing.to(handle.dtype) if self.closes else handle)
        return salience

    def normalise(self, norm: nn.BatchNorm2d, x: Tensor) -> Tensor | None:
        """The gated norm in one step where that is possible; ``pass_output`` then has nothing left to do."""
        if self.spec.repeat != 1 or not can_fuse(norm, x):
            return None
        _NOW.scaled.add(self)
        pooled, inner = self.reading(), self.generator.norm
        changed = self.masked or self.closes or self.truncated or self.blends or not self.training
        if changed or inner is None or not self.generator.generates_plainly(pooled):
            return gated_batch_norm(norm, x, self.factor(x))
        out, handle = generated_batch_norm(norm, x, self.generator, inner, pooled)
        self.recorded = (*self.recorded, handle)
        return out

    def constant(self) -> Tensor:
        """The running salience."""
        return self.running * self.mask if self.masked else self.running.clone()

    def hold(self, constant: bool) -> float:
        """Multiply by the running salience."""
        before = self.blend
        self.blend = 1.0 if constant else before
        return before

    def unhold(self, before: float) -> None:
        """Undo ``hold``."""
        self.blend = before

    def restrict(self, own: list[int], fed: list[int]) -> None:
        """Let only these channels pass, and let the generator read only these inputs."""
        super().restrict(own, fed)
        with torch.no_grad():
            self.input_mask.zero_()
            self.input_mask[fed] = 1

    def restrictions(self) -> tuple[Any, ...]:
        """What ``restore`` needs to undo a ``restrict``."""
        return (*super().restrictions(), self.input_mask.clone())

    def restore(self, before: tuple[Any, ...]) -> None:
        """Undo ``restrict``."""
        super().restore(before)
        self.input_mask.copy_(before[2])

    def start_pass(self) -> None:
        """Put what was recorded so far aside for the running salience; a new forward pass begins."""
        if self.recorded:
            self.pending += [handle.detach().clamp(max=1).mean(dim=0) for handle in self.recorded]
            self.recorded = ()

    def batch_mean(self) -> Tensor | None:
        """The mean salience (C,) over all that was recorded since the last call."""
        self.start_pass()
        mean = torch.stack(self.pending).mean(dim=0) if self.pending else None
        self.pending = []
        return mean


_NOW = _PassOfThread()


def _norm_forward(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Stands in for a gated norm's own forward, to do norm and gate in one step while training."""
    gate = norm._modules.get(GATE)
    out = gate.normalise(norm, x) if isinstance(gate, SalienceGate) else None
    return type(norm).forward(norm, x) if out is None else out
