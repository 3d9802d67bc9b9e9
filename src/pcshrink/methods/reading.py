"""Gates that look at what their layer is fed before they decide."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pcshrink.methods.pooling import pool
from pcshrink.surgery.gate import Gate, GateSpec


class _PassOfThread(threading.local):
    """What belongs to one forward pass of one thread: for each gate what it read."""

    def __init__(self) -> None:
        self.readings: weakref.WeakKeyDictionary[ReadingGate, Tensor] = weakref.WeakKeyDictionary()


class ReadingGate(Gate):
    """Reads the input of its source, by default the mean of each channel, and keeps it until its own turn comes."""

    READS_INPUT: ClassVar[bool] = True

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.traced: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one forward pass: recorded graphs can be neither copied nor pickled."""
        return super().__getstate__() | {"traced": None}

    def connect(self, layer: nn.Module, source: nn.Module) -> None:
        """Read the source's input."""
        source.register_forward_pre_hook(self.observe, with_kwargs=True)
        super().connect(layer, source)

    def read(self, x: Tensor) -> Tensor:
        """What to keep of the source's input: (B, ...) -> (B, C_in)."""
        return pool(x, self.spec.source_axis)

    def observe(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Hook before the source layer."""
        if self.stand_in is None:
            self.keep_reading(self.read(next(v for v in (*args, *kwargs.values()) if isinstance(v, Tensor))))
        return None

    def keep_reading(self, reading: Tensor) -> None:
        """Remember what was read for this forward pass."""
        if torch.compiler.is_compiling():
            self.traced = reading  # one thread traces; what it traces has no such attribute any more
            return
        _NOW.readings[self] = reading
        if self.training:
            _ANY_THREAD[self] = reading

    def reading(self) -> Tensor:
        """What was read in this forward pass."""
        if torch.compiler.is_compiling():
            reading, self.traced = self.traced, None  # nothing of a pass is left when it ends
        else:  # activation checkpointing on a GPU runs parts of a training pass again in another thread
            reading = _NOW.readings.get(self, _ANY_THREAD.get(self) if self.training else None)
        if reading is None:
            message = f"the layer {self.spec.source!r} did not run before {self.spec.module!r}, whose gate it feeds"
            raise RuntimeError(message)
        return reading


_NOW = _PassOfThread()
_ANY_THREAD: weakref.WeakKeyDictionary[ReadingGate, Tensor] = weakref.WeakKeyDictionary()
