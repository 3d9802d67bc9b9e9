"""Run a model to see what happens in it, as cheaply as that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from pcshrink.errors import TraceError
from pcshrink.graph.copies import duplicate, shared_parameters
from pcshrink.graph.foreign import hooked_from_outside, scripted_parts
from pcshrink.graph.hollow import Hollow, ValuesNeeded
from pcshrink.graph.record import Graph, record

G = TypeVar("G", bound=Graph)


class Survey:
    """Records what a model does, without the arithmetic as long as nothing looks at its results.

    Attributes:
        ran: What ran last: the model itself, or a copy that shares its parameters.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = self.ran = model
        self.hollow = not hooked_from_outside(model) and not scripted_parts(model)
        self._copies: list[nn.Module] = []  # held, since their tensors are known by their ids

    def record(self, example_input: object, kind: Callable[[nn.Module], G], *, on_copy: bool = False) -> G:
        """Run the model once and return what happened.

        Args:
            example_input: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
            kind: Makes the recording that is filled, for what runs.
            on_copy: Never run the model itself: some keep what depends on the newest input.

        Raises:
            TraceError: The model does not run on this input.
        """
        if self.hollow and (recording := self._record_hollow(example_input, kind)) is not None:
            return recording
        self.ran = self._copy() if on_copy else self.model
        recording = kind(self.ran)
        record(self.ran, example_input, into=recording)
        return recording

    def _record_hollow(self, example_input: object, kind: Callable[[nn.Module], G]) -> G | None:
        """``None`` where values are needed, or where zeros may be the reason of an error."""
        try:
            self.ran = self._copy()  # a new one each time: some models keep what they made of the input before
            hollow, recording = Hollow(self.ran, self.model), kind(self.ran)
            with hollow:
                record(self.ran, example_input, into=recording, compute=hollow.compute)
            self.hollow = not hollow.looked
        except ValuesNeeded:
            self.hollow = False
        except TraceError:
            return None
        return recording if self.hollow else None

    def _copy(self) -> nn.Module:
        self._copies.append(duplicate(self.model, dict(shared_parameters(self.model))))
        return self._copies[-1]
