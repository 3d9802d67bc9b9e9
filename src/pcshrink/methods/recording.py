"""Gates that record something of every training pass, for a loss to be made of it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pcshrink.surgery.gate import Gate, GateSpec

T = TypeVar("T")


class Recording(Gate, Generic[T]):
    """Put before another base: keeps what a gate records until the next pass, and out of copies.

    Attributes:
        recorded: What was recorded in the newest training pass, call by call.
    """

    def __init__(self, spec: GateSpec) -> None:
        super().__init__(spec)
        self.recorded: tuple[T, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to one forward pass: recorded graphs can be neither copied nor pickled."""
        return super().__getstate__() | {"recorded": ()}

    def record(self, what: T) -> None:
        """Keep this."""
        self.recorded = (*self.recorded, what)

    def start_pass(self) -> None:
        """Forget the last pass."""
        self.recorded = ()
