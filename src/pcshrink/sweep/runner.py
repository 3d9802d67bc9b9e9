"""Train many runs as child processes, some at a time; what was stopped goes on, what fails is told and no crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pcshrink.common.child import end_with_parent, own_command
from pcshrink.sweep.folder import SweepFolder
from pcshrink.sweep.runs import Outcome, Run, read_result
from pcshrink.sweep.vary import check_count
from pcshrink.train.checkpoint import Checkpoints
from pcshrink.train.interrupt import StopFlag, stop_flag

Say = Callable[[str], None]
LOG = "log.txt"
STOPPED = "stopped; the same command goes on"
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_BETWEEN_LINES = 60.0


def run_all(
    sweep: SweepFolder, runs: Sequence[Run], *, jobs: int = 1, say: Say | None = None
) -> tuple[list[Outcome], int]:
    """Train what is missing.

    Args:
        sweep: Where the runs are.
        runs: All that are wanted; finished ones are not run again, and equal ones only once.
        jobs: How many at a time.
        say: Told what runs and what is left.

    Returns:
        An outcome for each run, and the signal that stopped the work early, or 0.

    Raises:
        ConfigError: ``jobs`` is below 1, or the name of a run is taken by another recipe.
    """
    check_count("jobs", jobs)
    places = [None if run.recipe is None else sweep.place(run) for run in runs]
    todo = list(dict.fromkeys(p for p in places if p is not None and read_result(p) is None))
    crew = _Crew(todo, jobs, sweep, say or (lambda text: None))
    with stop_flag() as flag:
        crew.work(flag)
    outcomes = [
        Outcome(None, None, run.refused) if place is None else crew.outcome(place)
        for run, place in zip(runs, places, strict=True)
    ]
    return outcomes, flag.signum


class _Crew:
    """The children that run, and those that wait for their turn."""

    def __init__(self, todo: list[Path], jobs: int, sweep: SweepFolder, say: Say) -> None:
        self.waiting, self.jobs, self.sweep, self.say = todo, jobs, sweep, say
        self.total = len(todo)
        self.running: dict[Path, _Child] = {}
        self.reasons: dict[Path, str] = {}
        self._told = time.monotonic()

    def work(self, flag: StopFlag) -> None:
        try:
            while (self.waiting or self.running) and not flag.signum:
                while self.waiting and len(self.running) < self.jobs:
                    self._start(self.waiting.pop(0))
                time.sleep(SECONDS_BETWEEN_LOOKS)
                self._look()
        finally:
            self._stop()

    def _start(self, folder: Path) -> None:
        again = bool(Checkpoints(folder / "checkpoints").written())
        self.running[folder] = _Child(folder, self.jobs, self.sweep)
        number = self.total - len(self.waiting)
        verb = "goes on from its checkpoint" if again else "begins"
        self.say(f"[{number}/{self.total}] {folder.name} {verb}; {len(self.waiting)} to come")

    def _look(self) -> None:
        for folder, child in list(self.running.items()):
            if child.process.poll() is not None:
                del self.running[folder]
                self._end(folder, child)
        if self.running and time.monotonic() - self._told >= SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            at = ", ".join(f"{folder.name} {_progress(folder)}" for folder in self.running)
            self.say(f"running: {at}; {len(self.waiting)} to come")

    def _end(self, folder: Path, child: _Child) -> None:
        seconds, result = child.seconds, read_result(folder)
        if result is not None:
            self.say(f"{folder.name} is done in {seconds:.0f} s: error {result['compact']['error']:.2f} %")
            return
        self.reasons[folder] = child.reason()
        self.say(f"{folder.name} failed after {seconds:.0f} s: {self.reasons[folder]}")

    def _stop(self) -> None:
        if not self.running:
            return
        self.say(f"stopping: {', '.join(folder.name for folder in self.running)} write their checkpoints")
        for child in self.running.values():
            child.process.terminate()
        for child in self.running.values():
            child.process.wait()
        self.running.clear()

    def outcome(self, folder: Path) -> Outcome:
        result = read_result(folder)
        return Outcome(folder, result, "" if result is not None else self.reasons.get(folder, STOPPED))


class _Child:
    """One training in a process of its own.

    In a session of its own as well: Ctrl-C reaches this process only, which then tells the children. It keeps the
    folder's lock open, so that nobody works there while it lives. It stops, with a checkpoint, when this
    process is killed.
    """

    def __init__(self, folder: Path, jobs: int, sweep: SweepFolder) -> None:
        self.folder, self.began = folder, time.monotonic()
        command = [*own_command(), "train", str(folder / "recipe.yaml"), "--out", str(folder)]
        command += ["--resume", *(["--trust"] if sweep.trust else [])]
        threads = max(len(os.sched_getaffinity(0)) // jobs, 1) if hasattr(os, "sched_getaffinity") else 1
        environment = {"OMP_NUM_THREADS": str(threads)} | dict(os.environ)
        with (folder / LOG).open("ab") as log:
            self.start = log.tell()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                start_new_session=True, pass_fds=(sweep.lock,) if os.name == "posix" else (),
                preexec_fn=end_with_parent if os.name == "posix" else None,
            )  # fmt: skip

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def reason(self) -> str:
        """Why it failed, from its own words if there are any."""
        code = self.process.returncode
        if code < 0:
            name = signal.Signals(-code).name
            return f"ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        with (self.folder / LOG).open("rb") as log:
            log.seek(self.start)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        said = next((line for line in reversed(lines) if line.startswith("pcshrink: ")), lines[-1] if lines else "")
        return said.removeprefix("pcshrink: ") or f"ended with code {code} and without a word"


def _progress(folder: Path) -> str:
    """How far a run is, from the last whole line of its metrics."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        row: dict[str, Any] = json.loads(lines[-1])
        return f"(epoch {row['epoch'] + 1} of {row['epochs']})"
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return "(first epoch)"
