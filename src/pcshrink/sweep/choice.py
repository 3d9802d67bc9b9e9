"""What a comparison has rows for: a method, maybe with settings of its own."""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from typing import Any

from pcshrink.errors import ConfigError
from pcshrink.methods.base import Method
from pcshrink.methods.registry import method_class, method_names


@dataclass(frozen=True)
class Choice:
    """A method with settings.

    Attributes:
        text: As it was asked for: ``fpgm``, ``pcs+allocation=uniform``.
        name: The method's name.
        overrides: The settings as a recipe is overridden by them.
    """

    text: str
    name: str
    overrides: tuple[str, ...] = ()

    @property
    def method(self) -> type[Method[Any]]:
        """The method."""
        return method_class(self.name)

    @property
    def label(self) -> str:
        """As a part of a folder's name."""
        return re.sub(r"[^\w.-]+", "-", self.text)


def read_choice(text: str) -> Choice:
    """Read ``NAME`` or ``NAME+key=value+key=value``.

    Raises:
        ConfigError: There is no such method, or it has no such setting.
    """
    name, *settings = text.split("+")
    known = [
        field.name for field in dataclasses.fields(method_class(name).Config) if field.metadata.get("recipe", True)
    ]
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (equals and value):
            message = f"{text!r}: a setting of a method is written as key=value, got {setting!r}"
            raise ConfigError(message)
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            message = f"{text!r}: method {name} has no setting {key!r}; {hint}"
            raise ConfigError(message)
    return Choice(text, name, tuple(f"shrink.{setting}" for setting in settings))


def all_choices() -> list[str]:
    """All methods, each with the variants that it names."""
    names = []
    for name in method_names():
        variants = vars(method_class(name)).get("variants", ())  # those of a base are its own
        names += [name, *(f"{name}+{variant}" for variant in variants)]
    return names
