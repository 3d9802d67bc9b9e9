"""Things by name: built in, registered from Python, or code of the user's own; imported when first used."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from pcshrink.errors import ConfigError

T = TypeVar("T")
_CODE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


class Registry(Generic[T]):
    """Finds the entries of one kind by their names.

    A name is that of a built-in entry, one given to ``register``, or ``package.module:callable`` for code of the
    user's own. Such code is run only where the caller says that it is trusted, once for each name and process.

    Args:
        kind: What an entry is called in messages, for example "runtime".
        builtin: Name -> ``module:attribute`` of the entries that come with the package.
        entry_of: Makes an entry from a name and a thing, which may be an entry already or, for example, a plain
            function; it raises ConfigError where the thing is neither.

    Example:
        >>> greetings = Registry("greeting", {"upper": "string:capwords"}, lambda name, thing: thing)
        >>> greetings.register("quiet", str.lower)
        >>> list(greetings), greetings.get("upper")("good day"), greetings.get("quiet")("HELLO")
        (['upper', 'quiet'], 'Good Day', 'hello')
    """

    def __init__(self, kind: str, builtin: Mapping[str, str], entry_of: Callable[[str, Any], T]) -> None:
        self.kind = kind
        self._builtin, self._entry_of = dict(builtin), entry_of
        self._registered: dict[str, T] = {}
        self._imported: dict[str, T] = {}

    def __iter__(self) -> Iterator[str]:
        """The names, built-in ones first."""
        return iter(dict.fromkeys((*self._builtin, *self._registered)))

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._registered

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __str__(self) -> str:
        """The names as they are read: ``a, b or c``."""
        *first, last = self
        return f"{', '.join(first)} or {last}" if first else last

    def register(self, name: str, thing: T | Callable[..., Any], *, replace: bool = False) -> None:
        """Add an entry under a name, which is then known everywhere in this process.

        Args:
            name: What it is called in recipes, on the command line and in Python.
            thing: The entry, or what one can be made of.
            replace: Take the place of an entry with this name.

        Raises:
            ConfigError: The name is taken or no name, or the thing is no such entry.
        """
        if not isinstance(name, str) or not name.strip() or ":" in name:
            message = f"the name of a {self.kind} must be a text without a colon, got {name!r}"
            raise ConfigError(message)
        if name in self and not replace:
            message = f"there is a {self.kind} {name!r} already; choose another name, or pass replace=True"
            raise ConfigError(message)
        self._registered[name] = self._entry_of(name, thing)

    def unregister(self, name: str) -> None:
        """Forget what ``register`` added; a built-in entry that it replaced is back.

        Raises:
            ConfigError: No such name was registered.
        """
        if name not in self._registered:
            message = f"no {self.kind} {name!r} was registered"
            raise ConfigError(message)
        del self._registered[name]

    @contextlib.contextmanager
    def only(self, **things: T | Callable[..., Any]) -> Iterator[None]:
        """Know nothing but the built-in entries and these for a while; what was registered before is back afterwards.

        Args:
            things: Name -> the entry, or what one can be made of.
        """
        before, self._registered = self._registered, {}
        try:
            for name, thing in things.items():
                self.register(name, thing)
            yield
        finally:
            self._registered = before

    def get(self, wanted: str | T | Callable[..., Any], *, trust: bool = False) -> T:
        """Give the entry of a name; anything but a text is made into an entry as it is.

        Args:
            wanted: A name, an entry, or what an entry can be made of.
            trust: Import ``package.module:callable``, which runs that module. Once imported, the name is known.

        Raises:
            ConfigError: There is no such entry, or its name is code that nobody trusts.
        """
        if not isinstance(wanted, str):
            return self._entry_of(getattr(wanted, "__name__", type(wanted).__name__), wanted)
        self.check(wanted)
        if wanted in self._registered:
            return self._registered[wanted]
        if wanted not in self._imported:
            self._imported[wanted] = self._entry_of(wanted, self._import(wanted, trust))
        return self._imported[wanted]

    def check(self, name: str) -> str:
        """Give the name back if it is known or has the form of code; nothing is imported.

        Raises:
            ConfigError: It is neither; the message has the nearest names.
        """
        if name in self or _CODE.fullmatch(name):
            return name
        near = difflib.get_close_matches(name, list(self), n=3) or [n for n in self if name and n.startswith(name)]
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"known are {', '.join(self)}; one of your own is named as package.module:callable"
        )
        message = f"unknown {self.kind} {name!r}, {hint}"
        raise ConfigError(message)

    def _import(self, name: str, trust: bool) -> Any:
        if name in self._builtin:
            return _attribute(self._builtin[name])
        if not trust:
            message = (
                f"the {self.kind} {name!r} is code of your own, which would be run; if you trust it, say --trust on "
                "the command line; in Python pass the callable itself instead of its name"
            )
            raise ConfigError(message)
        return find_code(name)


def entry_of(kind: type[T], what: str, thing: object, *, form: str, make: Callable[[Callable[..., Any]], T]) -> T:
    """A thing as it is where it is an entry already, or an entry made of a function.

    Args:
        kind: The class of the entries.
        what: What the thing is called in messages.
        thing: What was given.
        form: What the function takes and gives, for messages.
        make: Makes an entry of a function.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(thing, kind):
        return thing
    if not callable(thing):
        message = f"the {what} must be of the class {kind.__name__} or a function {form}, got {type(thing).__name__}"
        raise ConfigError(message)
    return make(thing)


def find_code(name: str) -> Any:
    """Import what ``package.module:callable`` names; the working directory is searched last.

    Raises:
        ConfigError: There is nothing of this name, or its module fails when it is imported.
    """
    here = str(Path.cwd())
    added = here not in sys.path
    sys.path += [here] * added
    try:
        return _attribute(name)
    except Exception as error:  # the module is the user's, so anything can be raised
        reason = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        message = f"cannot find {name!r}: {reason}"
        raise ConfigError(message) from error
    finally:
        if added:
            sys.path.remove(here)


def _attribute(place: str) -> Any:
    module, _, path = place.partition(":")
    return functools.reduce(getattr, path.split("."), importlib.import_module(module))
