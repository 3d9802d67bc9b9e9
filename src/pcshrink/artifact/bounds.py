"""How much a file may ask for: a network that is being built stops growing where its weights cannot need more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.modules import module as hooks

from pcshrink.errors import ConfigError
from pcshrink.surgery.plan import PrunePlan

# A network may make parts that it throws away, and has many modules without weights.
SPARE_NUMBERS, SPARE_MODULES, MODULES_A_TENSOR = 50_000_000, 20_000, 100
SPARE_ARGUMENT = 4096
LARGEST_CUT = 100  # times as many weights before the cut as after it


class TooLargeError(ConfigError):
    """The network is larger than the weights that are to fill it."""


class Bounds:
    """The most that a full-size network may hold, given the weights of the network cut from it."""

    def __init__(self, saved: Mapping[str, Tensor], plan: PrunePlan | None) -> None:
        numbers = sum(tensor.numel() for tensor in saved.values())
        cut = 1 if plan is None else LARGEST_CUT
        self.numbers = 2 * cut * numbers + SPARE_NUMBERS
        self.modules = MODULES_A_TENSOR * len(saved) + SPARE_MODULES
        widest = max((size for tensor in saved.values() for size in tensor.shape), default=1)
        self.argument = max(16 * widest, SPARE_ARGUMENT)

    def check_arguments(self, arguments: Any) -> None:
        """Refuse numbers that no width, depth or image size of such a network can be: loops run that often.

        Raises:
            TooLargeError: There is one.
        """
        inner = arguments.values() if isinstance(arguments, Mapping) else arguments
        for value in inner:
            if isinstance(value, (Mapping, list, tuple)):
                self.check_arguments(value)
            elif isinstance(value, (int, float)) and abs(value) > self.argument:
                message = f"its argument {value} is larger than anything in its weights"
                raise TooLargeError(message)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Everything that this thread builds in here is counted.

        Raises:
            TooLargeError: It is too much.
        """
        thread, counted = threading.get_ident(), {"modules": 0, "numbers": 0}

        def count(owner: object, name: str, part: object) -> None:
            if part is None or threading.get_ident() != thread:
                return
            kind, amount = ("numbers", part.numel()) if isinstance(part, Tensor) else ("modules", 1)
            counted[kind] += amount
            if counted[kind] > getattr(self, kind):
                message = f"it has more than {getattr(self, kind):,} {kind}, far more than its weights can fill"
                raise TooLargeError(message)

        handles = [
            hooks.register_module_module_registration_hook(count),
            hooks.register_module_parameter_registration_hook(count),
            hooks.register_module_buffer_registration_hook(count),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
