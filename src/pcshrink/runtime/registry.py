"""The runtimes by name, and what each of them says about itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from pcshrink.common.registry import Registry, entry_of

if TYPE_CHECKING:
    from torch import nn

Call: TypeAlias = Callable[[], Any]
Prepare: TypeAlias = "Callable[[nn.Module, Any, int], Call]"
RuntimeLike: TypeAlias = Union[str, "Runtime", Prepare]
DEFAULT_RUNTIME = "onnxruntime"  # where a network is taken to run if nobody says so


def _no_demands() -> None:
    """Check nothing: this runtime is there wherever torch is."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A place where models run.

    Attributes:
        name: What it is called in results.
        prepare: From a model, an example input and a number of threads to a function that runs the model once on
            this input. The model is the runtime's own, in evaluation mode and without gradients.
        check: Raises ConfigError, with what to install, where it cannot run.
        by_layer: Whether it is ready quickly enough to time dozens of single layers in it.
        description: One line.
    """

    name: str
    prepare: Prepare
    check: Callable[[], None] = _no_demands
    by_layer: bool = True
    description: str = ""

    @classmethod
    def of(cls, name: str, thing: object) -> Runtime:
        """A runtime as it is, or one made of a ``prepare`` function.

        Raises:
            ConfigError: It is neither.
        """
        form = "(model, example_input, threads) -> call"
        return entry_of(
            cls, f"runtime {name!r}", thing, form=form, make=lambda prepare: cls(name=name, prepare=prepare)
        )


RUNTIMES = Registry(
    "runtime",
    {
        "eager": "pcshrink.runtime.torch:EAGER",
        "compiled": "pcshrink.runtime.torch:COMPILED",
        "onnxruntime": "pcshrink.runtime.onnxruntime:ONNXRUNTIME",
        "openvino": "pcshrink.runtime.openvino:OPENVINO",
    },
    Runtime.of,
)
