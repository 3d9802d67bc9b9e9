"""What is told about the methods."""

from __future__ import annotations

import dataclasses
import json
import re
import sys

import pytest

from pcshrink.cli.main import main
from pcshrink.common.docstrings import meanings_of
from pcshrink.methods.registry import BUILT_IN, method_class, method_names
from pcshrink.report.methods import list_methods, method_text, methods_text, show_method


def test_all_methods_are_listed_with_what_tells_them_apart() -> None:
    listed = list_methods()
    assert [method["name"] for method in listed] == method_names()
    lines = methods_text([method for method in listed if method["name"] in BUILT_IN]).splitlines()
    assert max(map(len, lines)) <= 120  # so that it can be read in a terminal
    rows = dict(zip(BUILT_IN, re.split(r"\n(?=\S)", "\n".join(lines[2:])), strict=True))
    for method in listed:
        if method["name"] not in BUILT_IN:  # other tests register some of their own
            continue
        for key in ("name", "kind", "unit", "starts_from", "budget_by", "reference"):
            assert method[key]
            assert set(str(method[key]).split()) <= set(rows[str(method["name"])].split())


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_one_method_is_shown_with_every_setting_explained(name: str) -> None:
    method = show_method(name)
    assert method["description"].startswith(method["summary"])
    assert "Attributes:" not in method["description"]
    fields = {field.name for field in dataclasses.fields(method_class(name).Config)}
    settings = {setting["name"]: setting for setting in method["settings"]}
    assert set(settings) <= fields
    assert "total_steps" not in settings  # a run sets it by itself
    assert [s["name"] for s in method["settings"] if not s["meaning"]] == []
    text = method_text(method)
    assert all(f"  {setting} (" in text for setting in settings)
    json.dumps(method)


def test_meanings_are_whole_sentences_from_all_bases() -> None:
    meanings = meanings_of(method_class("lasso").Config)
    assert meanings["alpha"] == "Weight of the newest batch in the running salience."
    assert meanings["min_channels"] == "Every group keeps at least this many channels."
    assert meanings["align"].endswith("(some seconds).")


def test_the_command_lists_and_shows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in ([], ["--json"], ["pcs"], ["pcs", "--json"]):
        monkeypatch.setattr(sys, "argv", ["pcshrink", "methods", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        shown.append(capsys.readouterr().out)
    assert shown[0].splitlines()[0].startswith("method")
    assert [method["name"] for method in json.loads(shown[1])] == method_names()
    assert "strength (B)" in shown[2]
    assert json.loads(shown[3])["settings"][0]["name"] == "alpha"
