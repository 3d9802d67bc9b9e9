"""The examples in docstrings, which are also on the pages of the reference, give what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from testing.project import ROOT

SOURCE = ROOT / "src"
WITH_EXAMPLES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if re.search(r"^ +>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("name", [module_of(path) for path in WITH_EXAMPLES])
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried
    assert not failed
