"""The project's own files, as tests read them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def pyproject() -> dict[str, Any]:
    """pyproject.toml as plain data."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        from pip._vendor import tomli as tomllib
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
