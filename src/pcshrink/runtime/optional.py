"""Libraries that need not be installed."""

from __future__ import annotations

import importlib
from typing import Any

from pcshrink.errors import ConfigError


def require(*names: str, extra: str = "export") -> Any:
    """Import optional libraries and give back the last one named.

    Args:
        *names: Modules to import.
        extra: The extra of this package that brings them.

    Raises:
        ConfigError: One is not installed.
    """
    library: Any = None
    for name in names:
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            message = f"this needs {name}, which is not installed: pip install 'pcshrink[{extra}]'"
            raise ConfigError(message) from error
    return library
