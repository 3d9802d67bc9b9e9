"""What networks cost whose gates choose for each input: the multiply-adds that really had to run.

The images run through the network, and every gate tells what it let through. Then an image of ones runs through the
same network, in which every layer writes ones and every gate lets through just what it did before. What is zero at a
layer's input then are the channels that it need not read. What no gradient flows back to at its output are the values
that nobody needs. A residual sum keeps a channel that either side has; a channel that leaves by two ways is needed if
one of them is open.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.config import Convention
from pcshrink.errors import ConfigError
from pcshrink.graph.model import evaluation, unwrap
from pcshrink.measure.cost import profile
from pcshrink.measure.shadow import Call, Shadow
from pcshrink.surgery.gate import Gate
from pcshrink.surgery.gates import find_gates, remove_gates_

CHUNK = 64  # images at a time: the values of all layers are kept for the gradients


@dataclass(frozen=True)
class Fixed:
    """Costs that are the same for every input."""

    params: int
    madds: int
    mem_access: int


@dataclass(frozen=True)
class Activity:
    """The cost of a network over many inputs.

    Attributes:
        convention: How multiply-adds are counted. Norms, activations and pools of the paper's count whole.
        dense: What the network without gates costs.
        own: What the gates cost.
        skipped: For each input the multiply-adds that did not have to run (N,).
        shares: Layer -> which share of its multiply-adds ran, mean over the inputs.
        whole: For each call of a layer, whether some of it is not needed even with all gates open.
    """

    convention: Convention
    dense: Fixed
    own: Fixed
    skipped: Tensor = field(repr=False)
    shares: dict[str, float] = field(repr=False)
    whole: tuple[bool, ...] = field(repr=False)

    @property
    def samples(self) -> Tensor:
        """The multiply-adds of each input (N,)."""
        return self.dense.madds + self.own.madds - self.skipped

    @property
    def madds(self) -> float:
        """Their mean."""
        return float(self.samples.mean())

    @property
    def spread(self) -> float:
        """Their standard deviation over the inputs."""
        return float(self.samples.std(correction=0))

    @property
    def share(self) -> float:
        """The mean, relative to the network without gates."""
        return self.madds / self.dense.madds

    @property
    def params(self) -> int:
        """All parameters: kernels stay whole, and gates have their own."""
        return self.dense.params + self.own.params

    @property
    def mem_access(self) -> int:
        """The memory access of network and gates; kernels and maps stay whole."""
        return self.dense.mem_access + self.own.mem_access

    def recounted(self, model: nn.Module, example: Tensor, convention: Convention) -> Activity:
        """The same in another convention; what was skipped are whole multiply-adds, which all of them count alike."""
        dense, own = _fixed(unwrap(model), example, convention)
        return replace(self, convention=convention, dense=dense, own=own)

    def __str__(self) -> str:
        """Mean, spread and range in one line."""
        samples = self.samples
        return (
            f"{self.madds / 1e6:,.2f} M madds for the mean of {len(samples)} inputs (+- {self.spread / 1e6:.2f} M, "
            f"{float(samples.min()) / 1e6:.2f} M to {float(samples.max()) / 1e6:.2f} M), "
            f"{100 * self.share:.1f} % of the dense network ({self.convention} convention)"
        )


def activity(
    model: nn.Module, batches: Iterable[Tensor], convention: Convention = "layers", *, earlier: Activity | None = None
) -> Activity:
    """Measure what a gated network costs, input by input.

    Args:
        model: A network with gates; it is left as it was.
        batches: Images (B, ...), as the network takes them.
        convention: As for ``profile``.
        earlier: A measurement of the same network; what does not depend on its gates is taken over.

    Raises:
        ConfigError: There are no images.
    """
    model = unwrap(model)
    meter = _Meter(model, () if earlier is None else earlier.whole)
    example = None
    for images in batches:
        for part in images.split(CHUNK):
            example = part[:1] if example is None else example
            meter.take(part)
    if example is None:
        message = "activity needs at least one image to measure with"
        raise ConfigError(message)
    if earlier is not None and earlier.convention == convention:
        dense, own = earlier.dense, earlier.own
    else:
        dense, own = _fixed(model, example.to(meter.dtype), convention)
    return Activity(convention, dense, own, torch.cat(meter.skipped), meter.shares(), meter.whole)


def _fixed(model: nn.Module, example: Tensor, convention: Convention) -> tuple[Fixed, Fixed]:
    """What the network costs without its gates, and what the gates cost."""
    bare = copy.deepcopy(model)
    remove_gates_(bare)
    whole = profile(bare, example, convention, batch_size=1)
    gated = profile(model, example, convention, batch_size=1)
    own = Fixed(gated.gate_params, gated.gate_madds, gated.gate_mem_access)
    return Fixed(whole.params, whole.madds, whole.mem_access), own


class _Meter:
    """Adds up what was skipped, batch by batch."""

    def __init__(self, model: nn.Module, whole: tuple[bool, ...]) -> None:
        self.model, self.gates, self.whole = model, find_gates(model), whole
        self.dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        self.skipped: list[Tensor] = []
        self.sums: dict[str, list[float]] = {}

    def take(self, images: Tensor) -> None:
        """Run a batch."""
        images = images.to(self.dtype)
        told: dict[str, list[Tensor]] = {name: [] for name in self.gates}
        with evaluation(self.model):
            with self._listening(told):
                self.model(images)
            if not self.whole:
                # What is not needed even with all gates open is not for the gates to save.
                self.whole = tuple(bool((call.share < 1).any()) for call in self._shadow(images[:1], {}))
            calls = self._shadow(images, told)
        skipped = torch.zeros(len(images), dtype=torch.float64)
        turn: dict[str, int] = {}
        for call, whole in zip(calls, self.whole, strict=True):
            share = torch.ones_like(call.share) if whole else call.share
            gate = self.gates.get(call.name)
            if gate is not None and gate.TELLS == "work":
                share = share * told[call.name][turn.get(call.name, 0)].flatten(1).double().mean(1).cpu()
                turn[call.name] = turn.get(call.name, 0) + 1
            skipped += call.madds * (1 - share)
            entry = self.sums.setdefault(call.name, [0.0, 0.0])
            entry[0] += call.madds * float(share.sum())
            entry[1] += call.madds * len(images)
        self.skipped.append(skipped)

    def shares(self) -> dict[str, float]:
        """For each layer the share of its multiply-adds that ran."""
        return {name: ran / max(all_, 1.0) for name, (ran, all_) in self.sums.items()}

    def _shadow(self, images: Tensor, told: dict[str, list[Tensor]]) -> list[Call]:
        with self._standing_in(told), torch.enable_grad():
            shadow = Shadow(self.model, len(images))
            return shadow.run(torch.ones_like(images))

    @contextlib.contextmanager
    def _listening(self, told: dict[str, list[Tensor]]) -> Iterator[None]:
        try:
            for name, gate in self.gates.items():
                gate.listener = told[name].append
            yield
        finally:
            for gate in self.gates.values():
                gate.listener = None

    @contextlib.contextmanager
    def _standing_in(self, told: dict[str, list[Tensor]]) -> Iterator[None]:
        try:
            for name, gate in self.gates.items():
                gate.stand_in = _repeat(gate, told.get(name, []))
            yield
        finally:
            for gate in self.gates.values():
                gate.stand_in = None


def _repeat(gate: Gate, told: list[Tensor]) -> Any:
    """What the gate let through, call by call; everything where it told nothing."""
    passing = iter([] if gate.TELLS == "work" else [(factor != 0).to(factor.dtype) for factor in told])
    return lambda: next(passing, None)
