"""The two control rows of every comparison: random channels, and the same widths with fresh weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pcshrink.config import MethodConfig, is_number
from pcshrink.errors import ConfigError
from pcshrink.methods.choosing import Choosing


@dataclass(frozen=True, kw_only=True)
class RandomConfig(MethodConfig):
    """Settings of random cutting.

    Attributes:
        draw: Which random choice; the same number cuts the same channels.
    """

    method: ClassVar[str] = "random"

    draw: int = 0

    def __post_init__(self) -> None:
        """Check every field once."""
        super().__post_init__()
        fine = is_number(self.draw) and isinstance(self.draw, int) and self.draw >= 0
        self.check(fine, "draw", self.draw, "a whole number of at least 0")


class Random(Choosing[RandomConfig]):
    """Random channels of the asked widths leave when the shrinking phase begins. A control."""

    Config: ClassVar[type[MethodConfig]] = RandomConfig
    reference: ClassVar[str] = "control"

    def scores(self) -> dict[str, Tensor]:
        """Drawn once for every group, by its name and width."""
        return {group.name: self._draw(group.name, group.channels) for group in self.groups}

    def _draw(self, name: str, channels: int) -> Tensor:
        digest = hashlib.sha256(f"{self.config.draw}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        return torch.rand(channels, generator=generator)


@dataclass(frozen=True, kw_only=True)
class ScratchConfig(RandomConfig):
    """Settings of training the asked widths from scratch; ``draw`` also chooses the fresh weights."""

    method: ClassVar[str] = "scratch"


class Scratch(Random):
    """The asked widths with fresh weights, trained for the same epochs. A control.

    Fresh weights are what torch draws for each layer (``reset_parameters``), not what the network's own code draws when
    it is built. That matters little where a BatchNorm follows, since it takes the scale away.
    """

    Config: ClassVar[type[MethodConfig]] = ScratchConfig
    restarts: ClassVar[bool] = True
    starts_from: ClassVar[str] = "nothing"

    def on_attach(self, new: set[str]) -> None:
        """See that all layers know how to start afresh.

        Raises:
            ConfigError: One does not.
        """
        for name, module in self.model.named_modules():
            _reset_of(name, module)

    def start(self) -> None:
        """Draw all weights anew, then leave out what the widths do not allow."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.draw)
            for name, module in self.model.named_modules():
                reset = _reset_of(name, module)
                if reset is not None:
                    reset()
        super().start()


def _reset_of(name: str, module: nn.Module) -> Callable[[], object] | None:
    """What draws the weights of a layer anew; None if it has none of its own."""
    reset: Callable[[], object] | None = getattr(module, "reset_parameters", None)
    if callable(reset):
        return reset
    if next(module.parameters(recurse=False), None) is not None:
        message = (
            f"method scratch cannot draw fresh weights for {name!r}: {type(module).__name__} has parameters but no "
            "reset_parameters(); train the narrow network from scratch in a plain run instead"
        )
        raise ConfigError(message)
    return None
