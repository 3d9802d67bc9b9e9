"""Libraries that need not be installed."""

from __future__ import annotations

import importlib
from typing import Any

from pcshrink.common.install import install_hint
from pcshrink.errors import ConfigError


def require(*names: str) -> Any:
    """Import optional libraries and give back the last one named.

    Raises:
        ConfigError: One is not installed.
    """
    library: Any = None
    for name in names:
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            message = f"this needs {name}, which is not installed; install it with {install_hint(name)}"
            raise ConfigError(message) from error
    return library
