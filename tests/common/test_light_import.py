"""A library that is asked for its version alone is not imported."""

from __future__ import annotations

import importlib
import sys

import pytest

from pcshrink.common.light_import import version_alone


def test_what_is_not_installed_is_still_missing() -> None:
    with version_alone("no_such_library"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_library")


def test_a_library_is_itself_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "iniconfig", raising=False)
    with version_alone("iniconfig"):
        stand_in = importlib.import_module("iniconfig")
        assert stand_in.__version__
        assert not hasattr(stand_in, "IniConfig")
    assert hasattr(importlib.import_module("iniconfig"), "IniConfig")


def test_what_was_imported_before_stays() -> None:
    with version_alone("pytest"):
        assert importlib.import_module("pytest") is pytest
