"""What methods share that rank the channels of each group and let the lowest go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from pcshrink.config import MethodConfig
from pcshrink.methods.base import Method
from pcshrink.methods.select import lowest

C = TypeVar("C", bound=MethodConfig)


class Choosing(Method[C]):
    """Base of methods that choose by scores: once, when the phase begins, or anew until it ends.

    A choice that is held closes its gates at once, so that no gradient reaches the channels and they may be cut at any
    time. Otherwise the gates stay open, and what is lowest at the end of the phase leaves.

    Attributes:
        held: The choice that holds (group name -> the channels that go); None while there is none.
    """

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self.held: dict[str, Tensor] | None = None

    @property
    def holds(self) -> bool:
        """Whether the choice is made once, when the phase begins."""
        return True

    def choose(self) -> dict[str, Tensor]:
        """The channels of each group that would go by now: the k lowest."""
        scores = self.scores()
        return {g.name: lowest(scores[g.name], g.k) for g in self.groups}

    def start(self) -> None:
        """Make the choice, if it is to hold."""
        if self.holds:
            self._hold(self.choose())

    def _hold(self, chosen: dict[str, Tensor]) -> None:
        self.held = {name: flags.cpu() for name, flags in chosen.items()}
        self.let_pass({name: ~flags for name, flags in self.held.items()})

    def on_change(self) -> None:
        """Choose again in the groups whose number of channels to go was changed."""
        if self.held is None:
            return
        old, new = self.held, self.choose()
        self._hold({g.name: old[g.name] if int(old[g.name].sum()) == g.k else new[g.name] for g in self.groups})

    def selected(self) -> dict[str, Tensor]:
        """The choice that holds, or what would go by now."""
        return self.choose() if self.held is None else self.held

    def gone(self) -> dict[str, Tensor]:
        """The choice that holds: its gates are closed."""
        return super().gone() if self.held is None else self.held

    def asleep(self) -> dict[str, Tensor]:
        """What would go if the phase ended now."""
        return self.selected()

    def state_dict(self) -> dict[str, Any]:
        """Which channels go, if that is settled."""
        held = self.held
        plain = None if held is None else {name: flags.tolist() for name, flags in held.items()}
        return super().state_dict() | {"held": plain}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; what was to go may have been cut since."""
        if state["held"] is not None:
            self.held = {g.name: still(state["held"].get(g.name, []), g.channels) for g in self.groups}
        super().load_state_dict(state)


def still(flags: list[bool], channels: int) -> Tensor:
    """The same choice, or none where the channels it spoke of are no longer there."""
    return torch.tensor(flags if len(flags) == channels else [False] * channels, dtype=torch.bool)
