"""Train what is missing, one run on each core; what was stopped goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.trial.keeping import keep_finished
from benchmarks.trial.places import KEPT, PROJECT, UNFINISHED
from benchmarks.trial.rows import split_name
from pcshrink.common.files import write_text
from pcshrink.sweep.vary import with_overrides, without_shrinking
from pcshrink.train.recipe.read import dump_recipe, load_recipe
from pcshrink.train.recipe.schema import Recipe

SECONDS_BETWEEN_LOOKS = 1.0


def recipe_of(run: str, data: Path) -> Recipe:
    """What a run trains."""
    row, seed = split_name(run)
    common = load_recipe(row.recipe, [*row.common, f"data.root={data}", f"seed={seed}"])
    settings = [setting.format(seed=seed) for setting in row.settings]
    if row.like is not None:
        settings += ["shrink.budget=null", f"shrink.like={(KEPT / f'{row.like}-{seed}').relative_to(PROJECT)}"]
    recipe = with_overrides(common, settings)
    return without_shrinking(recipe) if row.plain else recipe


def is_ready(run: str) -> bool:
    """Whether what a run takes its widths from or starts from is there."""
    row, seed = split_name(run)
    wanted = [row.after] if row.after else []
    wanted += [f"{row.like}-{seed}"] if row.like else []
    return all((KEPT / name / "result.json").is_file() for name in wanted)


def is_finished(run: str, runs: Path) -> bool:
    """Whether its result is here or among what was kept."""
    return any((home / run / "result.json").is_file() for home in (runs, KEPT))


def train_all(names: Sequence[str], runs: Path, data: Path, cores: Sequence[int], minutes: float) -> None:
    """Train runs in this order until all are finished or the time is over; then they write checkpoints and stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no training is left behind
    end, running = time.monotonic() + 60 * minutes, dict[int, tuple[str, subprocess.Popen[bytes]]]()
    tried: set[str] = set()
    try:
        while time.monotonic() < end:
            for core in cores:
                if core in running and running[core][1].poll() is not None:
                    _ended(*running.pop(core), runs)
                waiting = (n for n in names if n not in tried and not is_finished(n, runs) and is_ready(n))
                name = None if core in running else next(waiting, None)
                if name is not None:
                    tried.add(name)
                    running[core] = name, _start(name, runs, data, core)
            if not running:
                return
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        for _, child in running.values():
            child.send_signal(signal.SIGTERM)
        for name, child in running.values():
            child.wait()
            _ended(name, child, runs)


def _start(name: str, runs: Path, data: Path, core: int) -> subprocess.Popen[bytes]:
    folder = runs / name
    if not folder.exists() and (UNFINISHED / name).is_dir():
        shutil.copytree(UNFINISHED / name, folder)
    if not (folder / "recipe.yaml").is_file():
        write_text(folder / "recipe.yaml", dump_recipe(recipe_of(name, data)))
    command = [sys.executable, "-m", "pcshrink", "train", str(folder / "recipe.yaml"), "--out", str(folder), "--resume"]
    print(f"core {core}: {name}", flush=True)
    with (folder / "log.txt").open("ab") as log:
        child = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=dict(os.environ) | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    os.sched_setaffinity(child.pid, {core})
    return child


def _ended(name: str, child: subprocess.Popen[bytes], runs: Path) -> None:
    if is_finished(name, runs):
        keep_finished(name, runs)  # others may wait for its widths
    else:
        print(f"{name}: ended with code {child.returncode}", flush=True)
