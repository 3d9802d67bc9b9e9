"""Progress: a bar on a terminal, plain lines elsewhere, and never a word too much."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pcshrink.common import progress
from pcshrink.common.progress import show_progress, track


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown = show_progress("dense", 1000, done=100, seconds_between_lines=60)
    for second, done in ((30, 150), (60, 200), (90, 250), (119, 260)):
        clock[0] = second
        shown.update(done, "shrink")
    shown.say("epoch 1")  # a line as well: the next one can wait
    clock[0] = 178
    shown.update(300)
    clock[0] = 180
    shown.update(280)
    shown.close(finished=False)
    assert capsys.readouterr().err.splitlines() == [
        "shrink: 200 of 1,000, about 8 min left",
        "epoch 1",
        "shrink: 280 of 1,000, about 12 min left",
    ]


def test_work_that_fails_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        with track("reading", 3) as advance:
            advance(1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert capsys.readouterr().err == ""
    with track("reading", 3):
        pass
    assert capsys.readouterr().err == "reading: done\n"


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with track("reading", 3, enabled=False) as advance:
        advance(3)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = show_progress("[dense]", 20, done=5)
    shown.update(10, "[shrink]")
    shown.say("a line [of its own]")
    shown.close()
    written = capsys.readouterr().err
    assert "10/20" in written
    assert "[shrink]" in written
    assert "a line [of its own]" in written
