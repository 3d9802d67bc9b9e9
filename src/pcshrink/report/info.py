"""What is in a folder: a saved network, or a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pcshrink.artifact import read
from pcshrink.artifact.record import Artifact
from pcshrink.artifact.store import RECORD
from pcshrink.common.tables import text_table
from pcshrink.errors import CheckpointError
from pcshrink.train.epoch_row import EpochRow
from pcshrink.train.result import Result


def describe_folder(folder: str | Path) -> dict[str, Any]:
    """What a folder holds, as plain data: ``run`` and ``network``, where there are such.

    Args:
        folder: Of a run, finished or not, or of a saved network.

    Raises:
        CheckpointError: It holds neither, or what it holds is damaged.
    """
    folder = Path(folder)
    home = folder if (folder / RECORD).is_file() else folder / "model"
    facts: dict[str, Any] = {"folder": str(folder)}
    if (folder / "recipe.yaml").is_file():
        facts["run"] = _run(folder)
    if (home / RECORD).is_file():
        facts["network"] = _network(read(home))
    if len(facts) == 1:
        message = f"{folder} holds neither a run (recipe.yaml) nor a saved network ({RECORD})"
        raise CheckpointError(message)
    return facts


def info_text(facts: dict[str, Any]) -> str:
    """The same for people."""
    parts = []
    for title in ("run", "network"):
        if title in facts:
            rows = [
                [name.replace("_", " "), _shown(value)] for name, value in facts[title].items() if value is not None
            ]
            parts.append(f"{title} in {facts['folder']}\n{text_table(rows, '<')}")
    return "\n\n".join(parts)


def _run(folder: Path) -> dict[str, Any]:
    import yaml

    try:
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        result = json.loads(_text(folder / "result.json") or "null")
        lines = (_text(folder / "metrics.jsonl") or "").splitlines()
        last = EpochRow.from_dict(json.loads(lines[-1])) if lines else None
        shrink = recipe.get("shrink") or {}
        run = {
            "description": recipe.get("description") or None,
            "model": recipe["model"]["name"],
            "data": recipe["data"]["name"],
            "seed": recipe.get("seed"),
            "method": shrink.get("method"),
            "epochs": " + ".join(f"{n} {phase}" for phase, n in recipe["epochs"].items() if n),
            "state": _state(result, last),
        }
        return run | (_outcome(result) if result else {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        message = f"the files of the run in {folder} are damaged: {type(error).__name__}: {error}"
        raise CheckpointError(message) from error


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _state(result: dict[str, Any] | None, last: EpochRow | None) -> str:
    if result:
        return f"finished in {result['seconds']:.0f} s"
    done = f"epoch {last.epoch + 1} of {last.epochs} is done" if last else "no epoch is done"
    return f"not finished: {done}"


def _outcome(result: dict[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for metric, unit in (("error", " %"), ("madds", ""), ("params", ""), ("latency_ms", " ms")):
        values = [result[part].get(metric) for part in ("dense", "compact")]
        if values[1] is not None:
            before, after = ("-" if v is None else f"{v:,.2f}" if unit else f"{v:,}" for v in values)
            rows[metric] = f"{before}{unit} dense, {after}{unit} now"
    if "latency_ms" in rows:
        rows[f"latency_{result['compact'].get('latency_runtime', 'eager')}"] = rows.pop("latency_ms")
    if result.get("budget"):
        rows["budget"] = Result.from_dict(result).budget_line().removeprefix("budget: ")
    return rows


def _network(saved: Artifact) -> dict[str, Any]:
    plan, seen = saved.plan, saved.preprocessing
    kept = None
    if plan is not None:
        left, total = sum(map(len, plan.groups.values())), sum(plan.sizes.values())
        kept = f"{left} of {total} channels in {len(plan.groups)} groups" + ("" if saved.compact else " (not cut yet)")
    error = saved.metrics.get("error")
    return {
        "made_by": saved.builder or f"your own {saved.model_class}",
        "arguments": saved.builder_args or None,
        "kept": kept,
        "gates": f"{len(saved.gates)} kept" if saved.gates else None,
        "error": f"{error:.2f} % (accuracy {100 - error:.2f} %)" if isinstance(error, (int, float)) else None,
        "input": saved.input_shape,
        "resize": seen and (seen.resize or "stretched"),
        "interpolation": seen and seen.interpolation,
        "mean": seen and seen.mean,
        "std": seen and seen.std,
        "classes": seen and seen.classes,
        "weights": f"{saved.weights_bytes / 1e6:.2f} MB",
        "versions": saved.versions,
    }


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        text = ", ".join(map(str, value[:10]))
        return text + (f", ... ({len(value)})" if len(value) > 10 else "")
    return str(value)
