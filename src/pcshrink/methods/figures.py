"""What a method tells about itself after an epoch, and how people read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Label(NamedTuple):
    """How people read a figure.

    Attributes:
        text: What it is called.
        form: The format of its number.
    """

    text: str
    form: str = ".3g"


@dataclass(frozen=True)
class Figure:
    """A number that a method tells about itself.

    Attributes:
        key: What it is called in files.
        value: The number.
        label: How people read it.
    """

    key: str
    value: float
    label: Label

    def __str__(self) -> str:
        """For one line of progress."""
        return f"{self.label.text} {self.value:{self.label.form}}"


def plain_label(key: str) -> Label:
    """How a figure is read that nothing more is known of than its key.

    >>> plain_label("norm_left").text
    'norm left'
    """
    return Label(key.replace("_", " "))
