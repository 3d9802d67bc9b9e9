"""All methods by name. A new one is one file and one line here, or one ``register`` call from anywhere."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from pcshrink.config import MethodConfig
from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method

BUILT_IN: dict[str, str] = {
    "pcs": "pcs.method:PCS",
    "pcs-input": "pcs.by_input:ByInput",
    "truncation": "truncation:Truncation",
    "lasso": "lasso:Lasso",
    "random": "controls:Random",
    "scratch": "controls:Scratch",
    "fbs": "fbs:FBS",
    "manidp": "manidp:ManiDP",
    "cgnet": "cgnet:CGNet",
    "dgc": "dgc:DGC",
    "mil": "mil:MIL",
}
# Kind of gate -> the module that brings it, for saved networks.
GATES: dict[str, str] = {
    "salience": "pcs.gate",
    "fbs": "fbs",
    "manidp": "manidp",
    "cgnet": "cgnet",
    "dgc": "dgc",
    "mil": "mil",
}
_REGISTERED: dict[str, type[Method[Any]]] = {}


def register(method: type[Method[Any]]) -> type[Method[Any]]:
    """Make a method of one's own known under the name its ``Config`` gives it; works as a decorator.

    Raises:
        ConfigError: The name is taken or empty.
    """
    name = method.Config.method
    taken = name in BUILT_IN or _REGISTERED.get(name, method) is not method
    if not name or taken:
        what = f"the name {name!r} is taken" if name else f"{method.Config.__name__}.method is empty"
        message = f"a method must have a name of its own: {what}"
        raise ConfigError(message)
    _REGISTERED[name] = method
    return method


def method_names() -> list[str]:
    """All known names, built-in ones first."""
    return [*BUILT_IN, *_REGISTERED]


def method_class(name: str) -> type[Method[Any]]:
    """The method of a name.

    Raises:
        ConfigError: There is none, with the nearest names.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in BUILT_IN:
        near = difflib.get_close_matches(str(name), method_names(), n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(method_names())}"
        message = f"no method is called {name!r}; {hint}"
        raise ConfigError(message)
    module, _, attribute = BUILT_IN[name].partition(":")
    found: type[Method[Any]] = getattr(importlib.import_module(f"pcshrink.methods.{module}"), attribute)
    return found


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
