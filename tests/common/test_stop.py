"""Signals on the command line: one line and the right exit code, whatever the process is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pcshrink.common.stop import ONE_EVENT, SIGNALS, unheard_by_children
from pcshrink.train.interrupt import stop_flag

BEGIN = "from pcshrink.common.stop import end_on_signals, last_words\nend_on_signals()\n"
PAUSE = "import time, pathlib; pathlib.Path('ready').touch(); time.sleep(60)\n"


def stop(code: str, folder: Path, signum: int, *, group: bool) -> tuple[int, str]:
    """Run some code until it makes the file `ready`, send it a signal; how it ended and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (folder / "ready").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    (os.killpg if group else os.kill)(process.pid, signum)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_inside_an_import_is_one_line(signum: int, group: bool, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(PAUSE)
    code, said = stop(BEGIN + "import sys; sys.path.insert(0, '.')\nimport slow\n", tmp_path, signum, group=group)
    assert (code, said) == (128 + signum, "pcshrink: stopped\n")


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    writing = (
        "from pcshrink.common.files import staged\nlast_words(lambda: 'nothing is lost')\n"
        "with staged('result.json') as path:\n    path.write_text('{')\n    " + PAUSE
    )
    code, said = stop(BEGIN + writing, tmp_path, signal.SIGTERM, group=False)
    assert (code, said) == (143, "nothing is lost\n")
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


def test_workers_do_not_hear_what_is_meant_for_their_master() -> None:
    with unheard_by_children():
        worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    try:
        for signum in SIGNALS:
            worker.send_signal(signum)
        worker.communicate("done\n", timeout=60)
    finally:
        worker.kill()
    assert worker.returncode == 0
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(SIGNALS)


def test_a_signal_that_comes_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
    try:
        with stop_flag() as flag:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            assert flag.signum == signal.SIGINT
            now[0] += 2 * ONE_EVENT
            with pytest.raises(KeyboardInterrupt):  # whoever asks again does not want to wait
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, earlier)
