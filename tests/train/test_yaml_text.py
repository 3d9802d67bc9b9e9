"""Settings that are larger than they look are refused, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcshrink.errors import ConfigError
from pcshrink.train.recipe.yaml_text import parse_yaml, read_yaml_text

pytestmark = pytest.mark.unit

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{inner}'] * 9)}]\n" for inner, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_aliases_may_repeat_a_part() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: *a\n", "it") == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize("text", [BOMB, "&a [*a]", "a: &a {b: *a}"], ids=["bomb", "list in itself", "dict in itself"])
def test_aliases_that_grow_without_end(text: str) -> None:
    with pytest.raises(ConfigError, match=r"it holds more than 100,000 values.*\*alias"):
        parse_yaml(text, "it")


def test_nesting_without_end() -> None:
    with pytest.raises(ConfigError, match="it nests too deep"):
        parse_yaml("[" * 20_000, "it")


def test_a_file_too_large_for_settings_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 42)  # sparse
    with pytest.raises(ConfigError, match=f"has {1 << 42} bytes"):
        read_yaml_text(path)
