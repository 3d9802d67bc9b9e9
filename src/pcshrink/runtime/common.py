"""Optional libraries, and their chatter."""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from types import ModuleType

from pcshrink.common.install import install_hint
from pcshrink.errors import ConfigError


def require(*names: str) -> ModuleType:
    """Import an optional library, the last one named is given back.

    Raises:
        ConfigError: It is not installed.
    """
    found = None
    for name in names:
        try:
            found = importlib.import_module(name)
        except ImportError as error:
            message = f"this needs {name}, which is not installed; install it with {install_hint(name)}"
            raise ConfigError(message) from error
    assert found is not None
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep exporters' own warnings away; what they get wrong shows in the comparison."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
