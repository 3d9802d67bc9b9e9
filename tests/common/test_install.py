"""The command that brings a missing library fits the way in which pcshrink was installed."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pcshrink.common import install
from pcshrink.common.install import EXTRAS, install_hint

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ("{}", "`pip install 'pcshrink[export]'`"),
        (None, "`pip install 'pcshrink[export]'`"),
        ({"url": "file:///src/my%20clone", "dir_info": {}}, "`pip install '.[export]'` in '/src/my clone'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "`pip install -e '.[export]'` in /src"),
        (
            {"url": "https://example.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "`pip install 'pcshrink[export] @ git+https://example.org/p.git'`",
        ),
        (
            {"url": "file:///tmp/pcshrink-0.1.0-py3-none-any.whl", "archive_info": {}},
            "`pip install 'pcshrink[export] @ file:///tmp/pcshrink-0.1.0-py3-none-any.whl'`",
        ),
        ("not JSON", "`pip install '.[export]'` in the clone of pcshrink"),
    ],
)
def test_by_where_pcshrink_came_from(
    origin: object, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "pcshrink-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pcshrink\nVersion: 0.1.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    installed = metadata.PathDistribution(info)
    monkeypatch.setattr(install.metadata, "distribution", lambda name: installed)
    assert install_hint("onnxruntime.quantization") == command


def test_not_installed_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert install_hint("timm") == "`pip install '.[train]'` in the clone of pcshrink"


def test_a_library_of_no_extra() -> None:
    assert install_hint("sklearn.datasets") == "`pip install sklearn`"


def test_the_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for extra, libraries in EXTRAS.items():
        listed = re.search(rf"^{extra} = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)
        assert listed is not None
        packages = sorted(name.replace("-", "_") for name in re.findall(r'"([a-z0-9_-]+)', listed[1]))
        imported = sorted(set(libraries) - {"PIL"})  # PIL comes with torchvision
        assert len(packages) == len(imported)
        assert all(p.startswith(module) for p, module in zip(packages, imported, strict=True))  # mlflow-skinny: mlflow
