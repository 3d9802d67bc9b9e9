"""Processes that torchrun starts again: which run goes on by itself; that it does is seen in test_ddp.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcshrink.train import elastic


@pytest.mark.unit
def test_only_the_same_torchrun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not elastic.began_here(tmp_path)
    elastic.note_launcher(tmp_path)  # no torchrun: nothing to remember
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    elastic.note_launcher(tmp_path)
    assert not elastic.began_here(tmp_path)  # a second run of the same process
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert elastic.began_here(tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert not elastic.began_here(tmp_path)  # another torchrun: an earlier run that it must not touch
    (tmp_path / ".launcher").write_text("half")
    assert not elastic.began_here(tmp_path)
