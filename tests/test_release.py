"""What a release says about itself agrees everywhere. `make release-check` builds and installs it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pcshrink
from testing.project import ROOT, pyproject

VERSION = pcshrink.__version__


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return dict(pyproject()["project"])


def test_one_version_everywhere(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert {project["version"], citation["version"], newest[1]} == {VERSION}
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


def test_classifiers_name_the_tested_pythons(project: dict[str, Any]) -> None:
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)}
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert named == set(matrix)
    assert project["requires-python"] == f">={matrix[0]}"


def test_licence_files_exist(project: dict[str, Any]) -> None:
    assert all((ROOT / name).is_file() for name in project["license-files"])
    notice = (ROOT / "NOTICE.md").read_text(encoding="utf-8")
    embedded = list((ROOT / "src").rglob("*.npz"))
    assert embedded
    assert all(path.relative_to(ROOT).as_posix() in notice for path in embedded)


def test_every_kind_of_file_is_packed() -> None:
    packed = pyproject()["tool"]["setuptools"]["package-data"]["pcshrink"]
    package = ROOT / "src" / "pcshrink"
    left = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    taken = {path.relative_to(package).as_posix() for pattern in packed for path in package.glob(pattern)}
    assert left == taken


def test_workflows_are_valid_yaml_with_jobs() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {path.stem for path in files} == {"lint", "tests", "docs", "nightly", "release"}
    for path in files:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert content["jobs"], path.name
        assert content["permissions"] == {"contents": "read"}, f"{path.name}: jobs get no more rights than they need"


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda p: p.stem)
def test_issue_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    asked = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(asked) == len(set(asked))


def test_bug_reports_and_changes_ask_for_the_doctor() -> None:
    for name in ("ISSUE_TEMPLATE/bug.yml", "pull_request_template.md"):
        assert "pcshrink doctor" in (ROOT / ".github" / name).read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="make is for Unix systems")
def test_every_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.*")]
    named = {word for page in pages for word in re.findall(r"\bmake ([a-z-]+)`", page.read_text(encoding="utf-8"))}
    assert named <= targets
