"""Several processes on this machine for one run: started together, stopped together, speaking with one voice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from types import FrameType
from typing import IO

from pcshrink.common.child import end_with_parent, free_port, own_command
from pcshrink.common.stop import SIGNALS, is_echo, note_signal

SECONDS_BETWEEN_LOOKS = 0.05
SECONDS_TO_FOLLOW = 5.0  # when one has failed, the others usually notice by themselves
SECONDS_TO_END = 10.0


def launch(devices: int) -> int:
    """Run this very command in several processes; the exit code of them all.

    A signal is passed on to all of them. They are in sessions of their own, so that none hears it twice, and they end
    when this process does, whatever ends it.
    """
    with tempfile.TemporaryFile("w+b") as words_of_others:
        crew = _Crew(devices, words_of_others)
        for each in SIGNALS:
            signal.signal(each, crew.pass_on)
        return crew.wait()


class _Crew:
    def __init__(self, devices: int, words: IO[bytes]) -> None:
        self._words, self._caught = words, 0
        shared = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(devices),
            "LOCAL_WORLD_SIZE": str(devices), "GROUP_RANK": "0",
        }  # fmt: skip
        self._children = [self._start(rank, shared) for rank in range(devices)]
        self._told: set[int] = set()

    def _start(self, rank: int, shared: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ) | shared
        return subprocess.Popen(
            [*own_command(), *sys.argv[1:]], env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=None if rank == 0 else self._words, start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip

    def pass_on(self, signum: int, frame: FrameType | None) -> None:
        if is_echo():
            return
        note_signal()
        self._caught = self._caught or signum
        self._send(signum)

    def _send(self, signum: int) -> None:
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signum)

    def wait(self) -> int:
        while not any(self._codes()) and self._running():
            time.sleep(SECONDS_BETWEEN_LOOKS)
        failed = {rank: code for rank, code in enumerate(self._codes()) if code}
        if not failed:
            return 0
        # One that a signal ended is the reason why others that were quick to notice have ended as well.
        first_to_fail = min(failed, key=lambda rank: failed[rank] > 0)
        unaided = self._end_others()
        if self._caught:
            return 128 + self._caught
        code = self._children[first_to_fail].returncode
        self._tell(first_to_fail, code, unaided)
        return code if code > 0 else 128 - code

    def _codes(self) -> list[int | None]:
        return [child.poll() for child in self._children]

    def _running(self) -> bool:
        return None in self._codes()

    def _end_others(self) -> bool:
        """Wait until all have ended, with growing insistence; whether the first one did so by itself."""
        if self._caught or self._wait_until_ended(SECONDS_TO_FOLLOW):
            while self._caught and self._running():
                time.sleep(SECONDS_BETWEEN_LOOKS)
            return True
        unaided = self._children[0].poll() is not None
        self._send(signal.SIGTERM)
        if not self._wait_until_ended(SECONDS_TO_END):
            self._send(signal.SIGKILL)
        for child in self._children:
            child.wait()
        return unaided

    def _wait_until_ended(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self._running() and time.monotonic() < end:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return not self._running()

    def _tell(self, rank: int, code: int, unaided: bool) -> None:
        """What the user has not read yet: how another process than the first one failed."""
        if code < 0:
            name = signal.Signals(-code).name
            sys.stderr.write(f"pcshrink: process {rank} of {len(self._children)} was ended by {name}\n")
        elif not (unaided and self._children[0].returncode):
            self._words.seek(0)
            shutil.copyfileobj(self._words, sys.stderr.buffer)
            sys.stderr.flush()
