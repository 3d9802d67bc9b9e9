"""What Google-style docstrings say about a class, for help texts and schemas."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

_ENTRY = re.compile(r"^(\w+): (.*)$")


def description_of(documented: type[Any]) -> str:
    """A class's docstring without its list of attributes."""
    return _parts(documented)[0]


def meanings_of(documented: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say about each attribute."""
    meanings: dict[str, str] = {}
    for each in reversed(documented.__mro__[:-1]):
        meanings |= _entries(_parts(each)[1])
    return meanings


def _parts(documented: type[Any]) -> tuple[str, str]:
    """A docstring before and after ``Attributes:``; that of a base does not count."""
    text = inspect.cleandoc(documented.__dict__.get("__doc__") or "")
    before, _, after = text.partition("\nAttributes:\n")
    return before.strip(), after


def _entries(block: str) -> dict[str, str]:
    """``name: meaning`` pairs up to the next section, whose head is not indented."""
    lines = block.splitlines()
    end = next((place for place, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    entries: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent("\n".join(lines[:end])).splitlines():
        begins = _ENTRY.match(line)
        if begins is not None:
            name = begins[1]
            entries[name] = begins[2]
        elif name and line.strip():
            entries[name] += " " + line.strip()
    return entries
