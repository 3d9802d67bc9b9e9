"""YAML from anywhere: small, shallow, and no larger than it looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pcshrink.errors import ConfigError

LARGEST_FILE = 1 << 20
MOST_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """YAML without code, and without keys that stand twice: the last one would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, if no key stands twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                message = f"the key {key.value!r} stands twice in one section; remove one"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, where: str) -> Any:
    """Plain data from YAML text.

    Args:
        text: The text.
        where: What it is, for messages.

    Raises:
        ConfigError: It is no YAML, nests too deep, or grows without end by naming its own parts (aliases).
    """
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        message = f"{where} is not valid YAML: {' '.join(str(error).split())}"
        raise ConfigError(message) from error
    except RecursionError as error:
        message = f"{where} nests too deep for settings"
        raise ConfigError(message) from error
    _check_amount(content, where)
    return content


def read_yaml_text(path: Path) -> str:
    """The text of a YAML file.

    Raises:
        ConfigError: It cannot be read, or is too large for settings.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            message = f"{path} has {size} bytes; settings have at most {LARGEST_FILE}"
            raise ConfigError(message)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the recipe {path}: {error}"
        raise ConfigError(message) from error


def _check_amount(content: object, where: str) -> None:
    """Count every value as often as it occurs, and no further than makes sense."""
    waiting, seen = [content], 0
    while waiting:
        value = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            message = f"{where} holds more than {MOST_VALUES:,} values; does it repeat parts of itself (*alias)?"
            raise ConfigError(message)
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple, set)):
            waiting += value
