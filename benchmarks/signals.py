"""What Ctrl-C and SIGTERM do to a run: sent at random moments of every phase, then resumed, then compared.

    python -m benchmarks.signals [--tries 60] [--devices 1] [--seed 0] [--patience 240]

A disturbed run is stopped once in each phase, in a row: while Python imports, while data and gates are set up, in
training (dense, shrinking, settling), and while the result is written. Its images come from two worker processes. A
signal goes to the process alone, to its whole group (as a terminal does) or to both (as `timeout` does), at the
earliest when Python has begun to run our own code. Each stop must end with 130 or 143 and one line on stderr, and
leave a checkpoint or nothing to lose. Resumed for the last time, the run must give the bytes of a run that nobody
disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from pcshrink.common.child import own_command
from pcshrink.common.tables import text_table

WAYS: dict[str, Callable[[int, int], None]] = {
    "process": os.kill,
    "group": os.killpg,
    "both": lambda pid, signum: (os.kill(pid, signum), os.killpg(pid, signum))[0],
}
EPOCHS = {"dense": 2, "warmup": 1, "shrink": 3, "settle": 2}
STEPS = 12  # an epoch
LAST_STEP = STEPS * sum(EPOCHS.values())
# The phase, and the steps that must be done before the signal may come; None: before anything is written.
PHASES: dict[str, int | None] = {
    "imports": None,
    "set-up": None,
    "dense": 1,
    "shrinking": STEPS * 3 + 1,
    "settling": STEPS * 6 + 1,
    "finishing": LAST_STEP,
}
LATE = "had ended before the signal came"


def make_images(root: Path) -> None:
    """Two classes of noise, one darker than the other."""
    chance = np.random.default_rng(0)
    for split, count in (("train", 4 * STEPS), ("val", 8)):
        for label, brightest in (("dark", 128), ("light", 256)):
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = chance.integers(0, brightest, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")


def write_recipe(place: Path) -> Path:
    """A small run on an image folder, with something to do at the end."""
    recipe = {
        "model": {"name": "digitsnet", "args": {"widths": [8, 8, 16]}},
        "data": {"name": "folder", "root": str(place / "images"), "batch_size": 8, "image_size": 16,
                 "resize_size": 16, "workers": 2},
        "epochs": EPOCHS,
        "optimizer": {"lr": 0.02},
        "shrink": {"budget": {"madds": 0.5}, "gates": "fold", "compact_every": 1},
        "train": {"threads": 1},
        "output": {"latency": True, "onnx": True, "checkpoint_steps": 3},
    }  # fmt: skip
    path = place / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def newest_step(out: Path) -> int:
    """The step of the newest checkpoint; -1 if there is none."""
    return max((int(p.stem.partition("-")[2]) for p in out.glob("checkpoints/checkpoint-*")), default=-1)


class Run:
    """One run that is started again and again."""

    def __init__(self, recipe: Path, out: Path, devices: int, patience: float) -> None:
        self.out, self.patience = out, patience
        self.command = [*own_command(), "train", str(recipe), "--out", str(out), "--quiet", "--devices", str(devices)]

    def start(self) -> subprocess.Popen[str]:
        """In a group of its own."""
        resume = ["--resume"] if newest_step(self.out) >= 0 else []
        return subprocess.Popen(
            [*self.command, *resume], env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self) -> bytes:
        """Go on to the end; the weights that come out."""
        process = self.start()
        _, errors = process.communicate(timeout=self.patience)
        if process.returncode:
            raise SystemExit(f"the run failed with {process.returncode}: {errors}")
        return (self.out / "model" / "model.safetensors").read_bytes()

    def disturb(self, phase: str, signum: int, way: str, chance: random.Random) -> str:
        """Stop it once; what went wrong, or nothing."""
        process = self.start()
        self._wait_for(phase, process, chance)
        if process.poll() is None:
            WAYS[way](process.pid, signum)
        try:
            _, errors = process.communicate(timeout=self.patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "did not end"
        return self._judge(process.returncode, signum, errors)

    def _wait_for(self, phase: str, process: subprocess.Popen[str], chance: random.Random) -> None:
        steps, end = PHASES[phase], time.monotonic() + self.patience
        while process.poll() is None and not _listens(process.pid):
            time.sleep(0.001)
        if phase == "imports":
            time.sleep(chance.uniform(0.0, 2.0))
        elif phase == "set-up":
            while not (self.out / "recipe.yaml").exists() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(chance.uniform(0.0, 0.4))
        else:
            while newest_step(self.out) < (steps or 0) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(chance.uniform(0.0, 0.5))

    def _judge(self, code: int, signum: int, errors: str) -> str:
        lines = [line for line in errors.splitlines() if line.strip()]
        left = [path.name for path in self.out.rglob("*.tmp")]
        wrong = [
            (code == 0, LATE),
            (code != 128 + signum, f"exit code {code}"),
            (len(lines) != 1 or "stopped" not in lines[0], f"{len(lines)} lines: {errors[-600:]!r}"),
            (bool(left), f"left behind: {left}"),
        ]
        return next((text for holds, text in wrong if holds), "")


def main() -> None:
    """Disturb, resume, compare; print the outcome by phase and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=60)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=240.0, help="seconds to wait; more on a busy machine")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    counts: dict[tuple[str, str], list[int]] = {}
    wrong, differ, runs, late = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_images(place / "images")
        recipe = write_recipe(place)
        expected = Run(recipe, place / "whole", options.devices, options.patience).finish()
        done = 0
        while done < options.tries:
            runs += 1
            run = Run(recipe, place / f"run-{runs}", options.devices, options.patience)
            for phase in PHASES:
                way, signum = chance.choice(list(WAYS)), chance.choice([signal.SIGINT, signal.SIGTERM])
                problem = run.disturb(phase, signum, way, chance)
                if problem == LATE:
                    late += 1  # nothing was disturbed; whether the run is whole is seen below
                    continue
                done += 1
                cell = counts.setdefault((phase, way), [0, 0])
                cell[0] += 1
                cell[1] += not problem
                if problem:
                    wrong.append(f"run {runs}, {phase}, {signum.name} to {way}: {problem}")
                    print(wrong[-1], file=sys.stderr, flush=True)
            differ += run.finish() != expected
            print(f"{done} signals, {len(wrong)} wrong, {differ} of {runs} runs differ", file=sys.stderr, flush=True)
    rows = [[phase, *(_share(counts.get((phase, way))) for way in WAYS)] for phase in PHASES]
    print(text_table(rows, head=["phase", *(f"to the {way}" if way != "both" else "to both" for way in WAYS)]))
    print(f"{done - len(wrong)} of {done} signals as they should be, {late} more came too late")
    print(f"{differ} of {runs} resumed runs differ")
    sys.exit(bool(wrong or differ))


def _listens(pid: int) -> bool:
    """Whether Python has come as far as our own code, which catches SIGTERM before anything else."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def _share(cell: list[int] | None) -> str:
    return "-" if cell is None else f"{cell[1]} of {cell[0]}"


if __name__ == "__main__":
    main()
