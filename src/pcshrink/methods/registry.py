"""All methods by name. A new one is one file and one line here, or one ``register`` call from anywhere.

One that brings a gate of its own has a second line here, under ``GATES``: saved networks name kinds of gates only, and
their modules must be found without importing all methods.
"""

from __future__ import annotations

import importlib
from typing import Any

from pcshrink.common.registry import Registry
from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method

BUILT_IN: dict[str, str] = {
    "pcs": "pcs.method:PCS",
    "pcs-input": "pcs.by_input:ByInput",
    "truncation": "truncation:Truncation",
    "truncation-input": "truncation:TruncationByInput",
    "lasso": "lasso:Lasso",
    "random": "baselines:Random",
    "scratch": "baselines:Scratch",
    "sfp": "sfp:SoftPruning",
    "fpgm": "fpgm:GeometricMedian",
    "dsa": "dsa:Allocation",
    "torch-pruning": "torch_pruning:TorchPruning",
    "surgeon": "surgeon:Surgeon",
    "hinge": "hinge:Hinge",
    "dhp": "dhp:HyperPruning",
    "fbs": "fbs:FBS",
    "manidp": "manidp:ManiDP",
    "cgnet": "cgnet:CGNet",
    "dgc": "dgc:DGC",
    "mil": "mil:MIL",
}
# Kind of gate -> the module that brings it, for saved networks.
GATES: dict[str, str] = {
    "salience": "pcs.gate",
    "drawn": "dsa",
    "fbs": "fbs",
    "manidp": "manidp",
    "cgnet": "cgnet",
    "dgc": "dgc",
    "mil": "mil",
}


def _entry(name: str, thing: object) -> type[Method[Any]]:
    if not (isinstance(thing, type) and issubclass(thing, Method)):
        message = f"the method {name!r} must be a class derived from pcshrink.methods.base.Method, got {thing!r:.80}"
        raise ConfigError(message)
    return thing


METHODS: Registry[type[Method[Any]]] = Registry(
    "method", {name: f"pcshrink.methods.{place}" for name, place in BUILT_IN.items()}, _entry
)


def register(method: type[Method[Any]]) -> type[Method[Any]]:
    """Make a method of one's own known under the name its ``Config`` gives it; works as a decorator.

    Raises:
        ConfigError: The name is taken or empty.
    """
    name = method.Config.method
    if not name:
        message = f"a method must have a name of its own: {method.Config.__name__}.method is empty"
        raise ConfigError(message)
    if name not in METHODS or METHODS.get(name) is not method:
        METHODS.register(name, method)
    return method


def import_method(name: str, *, trust: bool) -> None:
    """Make a method known that a recipe names as code, ``package.module:Class``; other names are left alone.

    Raises:
        ConfigError: Nobody trusts it, or there is no such method.
    """
    if ":" in name:
        register(METHODS.get(name, trust=trust))


def method_names() -> list[str]:
    """All known names, built-in ones first."""
    return list(METHODS)


def method_class(name: str) -> type[Method[Any]]:
    """The method of a name.

    Raises:
        ConfigError: There is none, with the nearest names.
    """
    return METHODS.get(str(name))


def method_for(config: MethodConfig) -> Method[Any]:
    """A method with these settings.

    Raises:
        ConfigError: They are not the settings of any method.
    """
    if not isinstance(config, MethodConfig):
        message = f"config must be settings of a method such as ShrinkConfig, got {type(config).__name__}"
        raise ConfigError(message)
    return method_class(config.method)(config)


def bring_gates(kinds: set[str]) -> None:
    """Import the modules that define these kinds of gates."""
    for kind in kinds & set(GATES):
        importlib.import_module(f"pcshrink.methods.{GATES[kind]}")
