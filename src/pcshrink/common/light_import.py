"""Import a library without another that it asks for nothing but its version."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType


@contextmanager
def version_alone(library: str) -> Iterator[None]:
    """Meanwhile ``import library`` gives a module with a version and nothing else, unless it was imported before.

    Lightning's Fabric imports torchmetrics for that, which imports transformers: two seconds at each start.
    """
    if library in sys.modules:
        yield
        return
    try:
        version = metadata.version(library)
    except metadata.PackageNotFoundError:
        yield
        return
    stand_in = ModuleType(library)
    stand_in.__dict__["__version__"] = version
    sys.modules[library] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(library) is stand_in:
            del sys.modules[library]
