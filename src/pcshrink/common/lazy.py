"""Public names of a package that are imported when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """What a package takes as its ``__getattr__``.

    Args:
        package: Its ``__name__``.
        homes: Public name -> the module below the package that defines it.
    """

    def find(name: str) -> object:
        if name not in homes:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find
