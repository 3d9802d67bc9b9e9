"""Which packages are there, which are missing, and the command that brings them."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from pcshrink.common.install import EXTRAS, NAME, install_hint
from pcshrink.errors import ConfigError

# Libraries that are imported under another name than they are installed.
PACKAGE_OF = {"PIL": "pillow", "mlflow": "mlflow-skinny"}


def needed() -> dict[str, str | None]:
    """The packages that pcshrink cannot do without, each with its version; None if it is missing."""
    names = [re.split(r"[\s<>=!~;\[]", text)[0] for text in metadata.requires(NAME) or [] if "extra ==" not in text]
    return {name: version(name) for name in names}


def extras() -> dict[str, dict[str, Any]]:
    """Each optional part: its packages with their versions, and the command where one is missing."""
    known = {}
    for extra, libraries in EXTRAS.items():
        versions = {PACKAGE_OF.get(name, name): version(PACKAGE_OF.get(name, name)) for name in libraries}
        lacking = [name for name in libraries if find_spec(name) is None]
        known[extra] = {"packages": versions, "get_it": install_hint(lacking[0]).replace("`", "") if lacking else ""}
    return known


def runtimes() -> dict[str, str]:
    """Each place where models run: empty if it works here, else what is missing."""
    from pcshrink.runtime.registry import RUNTIMES

    known = {}
    for name in RUNTIMES:
        try:
            RUNTIMES.get(name).check()
            known[name] = ""
        except (ConfigError, ImportError) as error:
            known[name] = str(error)
    return known


def version(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
