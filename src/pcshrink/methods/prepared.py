"""Networks whose layers a method has replaced: they say so themselves, so that they can be built again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method
from pcshrink.methods.registry import method_class, method_for

MARK = "pcs_prepared"  # an attribute of the whole network; copies have it too


def mark_(model: nn.Module, method: Method[Any]) -> None:
    """Note on a network which method made its layers, and with which settings."""
    setattr(model, MARK, {"method": method.config.method, "settings": method.config.to_dict()})


def unmark_(model: nn.Module) -> None:
    """The layers are the network's own again."""
    vars(model).pop(MARK, None)


def mark_of(model: nn.Module) -> dict[str, Any] | None:
    """Which method made the network's layers, as plain data; None if they are its own."""
    mark: dict[str, Any] | None = vars(model).get(MARK)
    return mark


def rebuild(model: nn.Module, mark: Mapping[str, Any]) -> nn.Module:
    """Give a fresh network the layers that a mark speaks of; values are to be filled in.

    Raises:
        ConfigError: There is no such method, or it does not make layers of this network with these settings.
    """
    if mark_of(model) is not None:
        return model
    config = method_class(mark["method"]).Config
    try:
        return method_for(config.from_dict(mark["settings"])).rebuild(model)
    except TypeError as error:
        message = f"these are no settings of method {mark['method']!r}: {error}"
        raise ConfigError(message) from error
