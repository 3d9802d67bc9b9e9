"""A run as its files tell it: recipe, epochs, result, saved network, history. Whatever is not there yet is left out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pcshrink.artifact import read
from pcshrink.artifact.record import Artifact
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.methods.base import Method
from pcshrink.methods.registry import method_class
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.history import History
from pcshrink.train.outcome import Dynamic
from pcshrink.train.timetable import ORDER

COSTS = ("params", "madds", "mem_access", "paper_madds", "paper_mem_access", "gate_madds", "error", "loss")
KNOWN_IMAGES = {"cifar10": 10_000}  # where a run did not record how many it was evaluated on


@dataclass(frozen=True, kw_only=True)
class Run:
    """What there is to tell about a run.

    Attributes:
        name: What it is called here.
        folder: Where its files are.
        recipe: The recipe as plain data.
        rows: One for each epoch.
        result: The outcome; empty while the run goes on.
        saved: The saved network's record.
        history: The record of steps and scores.
        network: Groups, layers and what stays, as ``network_facts`` gives them; None if they cannot be known.
        times: What each layer takes, if it was measured.
    """

    name: str
    folder: Path
    recipe: dict[str, Any]
    rows: list[EpochRow]
    result: dict[str, Any] = field(default_factory=dict)
    saved: Artifact | None = None
    history: History | None = None
    network: dict[str, Any] | None = None
    times: dict[str, Any] | None = None

    @property
    def dense(self) -> dict[str, Any]:
        """Costs and error of the uncompressed network, which is the final one of a plain run."""
        plain = {"error": self.compact.get("error")} if self.method == "dense" else {}
        return plain | dict(self.result.get("dense") or {})

    @property
    def compact(self) -> dict[str, Any]:
        """Costs and error of the final network."""
        return dict(self.result.get("compact") or {})

    @property
    def whole(self) -> bool:
        """Whether the final network costs what the dense one does: nothing was cut, or is skipped for an input."""
        return bool(self.result) and self.cuts and self.compact.get("params") == self.dense.get("params")

    @property
    def dynamic(self) -> Dynamic | None:
        """What the mean input costs, where gates choose for each input and the run has finished."""
        found = self.result.get("dynamic")
        return Dynamic(**found) if found else None

    @property
    def cuts(self) -> bool:
        """Whether channels leave in such a run; False where gates choose for each input and kernels stay whole."""
        kind = self.method_class
        return not self.result.get("dynamic") and (kind is None or kind.static)

    @property
    def method_class(self) -> type[Method[Any]] | None:
        """Its method; None for a plain run, and for a method that is not known here."""
        try:
            return method_class(self.method)
        except ConfigError:
            return None

    @property
    def data(self) -> str:
        """The data set."""
        return str(self.recipe["data"]["name"])

    @property
    def model(self) -> str:
        """The network."""
        return str(self.recipe["model"]["name"])

    @property
    def method(self) -> str:
        """The name of its method, or ``dense``."""
        return str((self.recipe.get("shrink") or {"method": "dense"}).get("method", "shrink"))

    @property
    def score_name(self) -> str:
        """What the traces of single channels are called; empty where the method has none to draw."""
        return self.method_class.score_name if self.method_class is not None else ""

    @property
    def dead_at(self) -> float:
        """The score at or below which a channel is dead."""
        return self.method_class.dead_at(self.recipe.get("shrink") or {}) if self.method_class is not None else 0.0

    @property
    def images(self) -> int | None:
        """How many images the error was measured on."""
        recorded = self.history.facts.get("images", {}).get("eval") if self.history is not None else None
        number = self.compact.get("images") or recorded or KNOWN_IMAGES.get(self.data)
        return int(number) if number else None

    @property
    def widths(self) -> dict[str, tuple[int, int]]:
        """Group -> channels before and now; empty where no channel leaves."""
        if not self.cuts:
            return {}
        plan = self.saved.plan if self.saved is not None else None
        if plan is not None:
            return {name: (plan.sizes[name], len(kept)) for name, kept in plan.groups.items()}
        groups = self.history.groups if self.history is not None else {}
        return {name: (trace.salience.shape[1], int(trace.alive[-1])) for name, trace in groups.items()}

    @property
    def layers_known(self) -> bool:
        """Whether it is known what is left of every layer: from the saved network, or since all of it is."""
        return self.saved is not None or all(before == now for before, now in self.widths.values())

    def phases(self) -> list[tuple[str, int, int]]:
        """Name, first epoch and end of each phase."""
        spans: list[tuple[str, int, int]] = []
        start = 0
        for phase in ORDER:
            length = int(self.recipe.get("epochs", {}).get(phase, 0))
            if length:
                spans.append((phase, start, start + length))
            start += length
        return spans

    @property
    def cut_epoch(self) -> int | None:
        """The epoch before which everything selected was cut; None where nothing is, or not yet."""
        if not self.cuts:
            return None
        end = next((end for phase, _, end in self.phases() if phase == "shrink"), None)
        return end if end is not None and len(self.rows) >= end else None


def open_run(folder: str | Path, name: str | None = None) -> Run:
    """Read all files of a run, finished or not; also of a kept one (``results.json`` and ``log.jsonl``).

    Raises:
        CheckpointError: The folder is no run, has no epoch yet, or a file in it is damaged.
    """
    folder = Path(folder)
    recipe_file, log_file = folder / "recipe.yaml", _first(folder, "metrics.jsonl", "log.jsonl")
    if not recipe_file.is_file():
        what = "has no recipe.yaml" if folder.is_dir() else "is no folder"
        message = f"{folder} is no run: it {what}; name the folder that `pcshrink train --out` wrote"
        raise CheckpointError(message)
    rows = _rows(log_file) if log_file is not None else []
    if not rows:
        message = f"the run in {folder} has no finished epoch yet; report it after its first one"
        raise CheckpointError(message)
    home = next((h for h in (folder / "model", folder) if (h / "pcshrink.json").is_file()), None)
    return Run(
        name=name or folder.resolve().name,
        folder=folder,
        recipe=_recipe(recipe_file),
        rows=rows,
        result=_result(folder),
        saved=read(home) if home is not None else None,
        history=History.open(folder) if History.exists(folder) else None,
        times=_json(folder / "layers.json") if (folder / "layers.json").is_file() else None,
    )


def _first(folder: Path, *names: str) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _recipe(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        _ = content["model"]["name"], content["data"]["name"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        message = f"{path} is not the recipe of a run: {' '.join(str(error).split())[:200]}"
        raise CheckpointError(message) from error
    return dict(content)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path} is damaged: {error}"
        raise CheckpointError(message) from error
    if not isinstance(content, dict):
        message = f"{path} is damaged: it holds a {type(content).__name__}, not an object"
        raise CheckpointError(message)
    return content


def _rows(path: Path) -> list[EpochRow]:
    """The epochs; a last line that is being written, or was cut short, is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict) or "epoch" not in row:
            break
        rows.append(EpochRow.from_dict(row))
    return rows


def _result(folder: Path) -> dict[str, Any]:
    if (folder / "result.json").is_file():
        return _json(folder / "result.json")
    if (folder / "results.json").is_file():
        return _kept(_json(folder / "results.json"))
    return {}


def _kept(said: dict[str, Any]) -> dict[str, Any]:
    """A kept result in the form of a run's own."""
    compact = {key: said[key] for key in COSTS if key in said}
    dense: dict[str, Any] = {}
    timed = said.get("latency")
    if timed:
        compact |= {"latency_ms": timed["ms"]}
        dense |= {"latency_ms": timed["ms"] / timed["share"]}
    keep: dict[str, Any] = {key: said[key] for key in ("cut", "widths", "seconds", "command") if key in said}
    return {"dense": dense, "compact": compact, **keep}
