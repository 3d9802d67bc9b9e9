"""The networks this package defines itself, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.models import resnet_cifar, t2t_vit

PREFIX = "pcshrink:"

_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    builder.__name__: builder
    for builder in (
        resnet_cifar.digitsnet,
        resnet_cifar.resnet20,
        resnet_cifar.resnet32,
        resnet_cifar.resnet44,
        resnet_cifar.resnet56,
        resnet_cifar.resnet110,
        t2t_vit.t2t_vit_14,
        t2t_vit.t2t_vit_19,
        t2t_vit.t2t_vit_24,
        t2t_vit.t2t_vit_t_14,
        t2t_vit.t2t_vit_t_19,
        t2t_vit.t2t_vit_t_24,
    )
}


def names() -> list[str]:
    """The names `build` knows."""
    return list(_BUILDERS)


def build(name: str, **kwargs: object) -> nn.Module:
    """Make one of this package's networks, with fresh weights.

    Args:
        name: ``resnet20`` or ``pcshrink:resnet20``.
        **kwargs: Arguments of the network, such as ``num_classes`` or ``shortcut``.

    Raises:
        ConfigError: There is no such network, or it does not take these arguments.

    Example:
        >>> build("resnet20", shortcut="A").fc.out_features
        10
    """
    short = name.removeprefix(PREFIX)
    if short not in _BUILDERS:
        raise ConfigError(unknown(name, _BUILDERS))
    try:
        return _BUILDERS[short](**kwargs)
    except TypeError as error:
        message = f"cannot make the model {name!r} with {kwargs}: {error}"
        raise ConfigError(message) from error


def unknown(name: str, known: Iterable[str], note: str = "") -> str:
    """Say that there is no model ``name``, and what may have been meant."""
    prefix, _, short = name.rpartition(":")
    near = difflib.get_close_matches(short.lower(), sorted(known), n=5, cutoff=0.6)
    meant = ", ".join(f"{prefix}:{match}" if prefix else match for match in near)
    if near:
        hint = f"did you mean {meant}?"
    elif prefix in ("timm", "torchvision"):
        lists = {"timm": "timm.list_models()", "torchvision": "torchvision.models.list_models()"}[prefix]
        hint = f"{lists} gives all names"
    else:
        hint = f"the names of this package are {', '.join(_BUILDERS)}"
    return f"no model is called {name!r}{note}; {hint}"
