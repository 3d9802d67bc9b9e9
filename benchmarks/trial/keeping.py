"""Copy into the project what pages need of finished runs, and what unfinished ones go on from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from benchmarks.trial.places import KEPT, UNFINISHED
from benchmarks.trial.rows import run_names, split_name
from pcshrink.train.checkpoint import Checkpoints

FACTS = ("recipe.yaml", "metrics.jsonl", "result.json")
HISTORY = "history.bin"  # most of what a run weighs


def keep_all(runs: Path) -> None:
    """Keep whatever there is of every run in a folder."""
    for name in run_names():
        folder = runs / name
        if (folder / "result.json").is_file():
            keep_finished(name, runs)
        elif Checkpoints(folder / "checkpoints").written():
            _keep_unfinished(name, folder)


def keep_finished(name: str, runs: Path) -> None:
    """Keep the result of a run, and its network if others need it."""
    folder, (row, seed) = runs / name, split_name(name)
    for file in FACTS if seed else (*FACTS, HISTORY):  # figures are drawn of the first seed
        _copy(folder / file, KEPT / name / file)
    if row.keeps_model:
        shutil.copytree(folder / "model", KEPT / name / "model", dirs_exist_ok=True)
    shutil.rmtree(UNFINISHED / name, ignore_errors=True)
    error = json.loads((folder / "result.json").read_text(encoding="utf-8"))["compact"]["error"]
    print(f"{name}: finished, error {error:.2f} %")


def _keep_unfinished(name: str, folder: Path) -> None:
    newest = Checkpoints(folder / "checkpoints").written()[-1]
    shutil.rmtree(UNFINISHED / name, ignore_errors=True)
    for file in ("recipe.yaml", "metrics.jsonl", HISTORY, "dense.safetensors"):
        _copy(folder / file, UNFINISHED / name / file)
    _copy(newest, UNFINISHED / name / "checkpoints" / newest.name)
    print(f"{name}: unfinished, {newest.name}")


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
