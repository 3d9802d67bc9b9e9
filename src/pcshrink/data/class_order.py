"""Which folder of images belongs to which output of a network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcshrink.errors import DataError

_FORMS = (
    "one name a line, a JSON list of names in the order of the outputs, or a JSON object from names to numbers or from "
    'numbers to names ({"0": ["n01440764", "tench"], ...})'
)


@dataclass(frozen=True)
class ClassOrder:
    """The classes in the order of a network's outputs.

    Attributes:
        names: What each output is called, for people.
        numbers: The output for each name that a folder may have; an output may have several.
        origin: Where this comes from, for messages.
    """

    names: tuple[str, ...]
    numbers: Mapping[str, int]
    origin: str

    @classmethod
    def of(cls, classes: str | Path | Sequence[str]) -> ClassOrder:
        """From names in their order, or from a file.

        Raises:
            DataError: The file is missing or is something else, a name stands twice, or a number is left out.
        """
        if isinstance(classes, (str, Path)):
            return _ordered(_read(Path(classes)), str(classes))
        return _ordered([[name] for name in classes], "the network")

    def number(self, name: str, what: str) -> int:
        """The output that a class belongs to.

        Args:
            name: Of the class.
            what: What has this name, for the message.

        Raises:
            DataError: None.
        """
        if name not in self.numbers:
            shown = ", ".join(self.names[:5]) + (f" and {len(self.names) - 5} more" if len(self.names) > 5 else "")
            message = (
                f"{what} is none of the {len(self.names)} classes of {self.origin} ({shown}); rename it, "
                "or say which folder belongs to which output in a file of classes (data.classes, --classes)"
            )
            raise DataError(message)
        return self.numbers[name]


def _ordered(aliases: Sequence[Sequence[str]], origin: str) -> ClassOrder:
    numbers: dict[str, int] = {}
    for number, names in enumerate(aliases):
        for name in dict.fromkeys(names):
            if not name or name in numbers:
                what = f"the name {name!r} twice" if name else f"no name for output {number}"
                message = f"{origin} has {what}; every output needs a name of its own"
                raise DataError(message)
            numbers[name] = number
    if not numbers:
        message = f"{origin} names no classes; a file of classes has {_FORMS}"
        raise DataError(message)
    return ClassOrder(tuple(names[-1] for names in aliases), numbers, origin)


def _read(path: Path) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the file of classes {path}: {error}"
        raise DataError(message) from error
    if not text.lstrip().startswith(("[", "{")):
        return [[line.strip()] for line in text.splitlines() if line.strip()]
    try:
        return _from_json(json.loads(text))
    except (ValueError, TypeError) as error:
        message = f"{path} is no file of classes ({error}); it has {_FORMS}"
        raise DataError(message) from error


def _from_json(content: Any) -> list[list[str]]:
    if isinstance(content, list):
        return [_names(entry) for entry in content]
    by_number = {int(key): _names(value) for key, value in content.items() if str(key).isdigit()}
    if len(by_number) != len(content):
        by_number = {}
        for name, number in content.items():
            if type(number) is not int or number in by_number:
                message = f"{name!r} has {number!r}, not a number of its own"
                raise ValueError(message)
            by_number[number] = [name]
    if sorted(by_number) != list(range(len(by_number))):
        message = f"outputs must be numbered from 0 to {len(by_number) - 1} without a gap"
        raise ValueError(message)
    return [by_number[number] for number in range(len(by_number))]


def _names(entry: object) -> list[str]:
    names = [entry] if isinstance(entry, str) else entry
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        message = f"expected a name or a list of names, got {str(entry)[:60]!r}"
        raise TypeError(message)
    return names
