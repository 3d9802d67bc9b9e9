"""A recipe can come from anybody: code that it names, or leads a library to, runs only where it is trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pcshrink.errors import ConfigError
from pcshrink.models import create
from pcshrink.train.run import train
from pcshrink.train.session import make_model
from testing.training import tiny

pytestmark = pytest.mark.unit

BESIDE = """
from pathlib import Path
from transformers import PretrainedConfig

Path({ran!r}).touch()


class Beside(PretrainedConfig):
    model_type = "beside"
"""


def refused(folder: Path, **changes: Any) -> str:
    with pytest.raises(ConfigError, match="--trust") as caught:
        train(tiny(**changes), folder, quiet=True)
    assert not folder.exists()
    return str(caught.value)


@pytest.mark.parametrize("section", ["model", "distill"])
def test_names_of_code(tmp_path: Path, section: str) -> None:
    key = "name" if section == "model" else "teacher"
    entry = {key: "os:system", "args": {"command": f"touch {tmp_path}/ran"}, "pretrained": section == "distill"}
    said = refused(tmp_path / "out", **{section: entry})
    assert said.startswith(f"{section}.{key}: 'os:system' is code of your own")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "argument",
    ["checkpoint_path", "model_name", "name", "pretrained", "pretrained_cfg_overlay", "spec", "trust_remote_code"],
)
def test_arguments_that_reach_far(tmp_path: Path, argument: str) -> None:
    said = refused(tmp_path / "out", model={"name": "timm:test_resnet", "args": {argument: "evil.pkl"}})
    assert f"model.args: {argument!r} may open files and run code" in said
    teacher = {"teacher": "timm:test_resnet", "args": {argument: "evil.pkl"}, "pretrained": True}
    assert refused(tmp_path / "out", distill=teacher).startswith(f"distill.args: {argument!r}")


@pytest.mark.parametrize("argument", ["spec", "pretrained"])
def test_arguments_that_are_settings_of_their_own(argument: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot hold '{argument}', which is a setting of its own"):
        make_model("digitsnet", {argument: True}, 10)


def test_code_beside_a_network_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("sys.stdin", None)  # nobody is asked
    ran = tmp_path / "ran"
    (tmp_path / "beside.py").write_text(BESIDE.format(ran=str(ran)))
    config = {"model_type": "beside", "auto_map": {"AutoConfig": "beside.Beside"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    name = f"transformers:{tmp_path}"
    refused(tmp_path / "out", model={"name": name, "args": {"trust_remote_code": True}})
    with pytest.raises(ConfigError, match="gives no image classifier"):
        create(name)
    assert not ran.exists()
