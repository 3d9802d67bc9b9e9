"""Keep finished runs in ``zoo/`` and write ``docs/results.md`` from what is kept.

    python -m benchmarks.results keep runs/resnet20 resnet20-pcs --method PCS --train-command "pcshrink train ..."
    python -m benchmarks.results time               # latency of everything kept, side by side in one run
    python -m benchmarks.results table              # docs/results.md

Each folder of ``zoo/`` holds a saved network, its ONNX file, its recipe, the log of every epoch and ``results.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml

import pcshrink
from pcshrink.data import DataConfig, load_dataset
from pcshrink.measure.latency import compare
from pcshrink.models import create
from pcshrink.report.references import REFERENCES

ROOT = Path(__file__).resolve().parent.parent
ZOO, PAGE = ROOT / "zoo", ROOT / "docs" / "results.md"
ROOT_OF_DATA = "data/cifar10"
SLICE = 500  # test images that the test suite checks
# The paper's CIFAR-10 table: network, method, error in per cent, madds in millions.
NETWORKS = {"resnet20": "ResNet-20", "resnet32": "ResNet-32"}
PAPER = [(NETWORKS[r.model], r.method, r.error, round(r.madds / 1e6, 1)) for r in REFERENCES if r.model in NETWORKS]
TEXT = """# Results on CIFAR-10

Written by `python -m benchmarks.results table` from the files in `zoo/`.

Error: on the 10,000 test images after the last epoch, in per cent, of the compact network in float32; the epochs in
`log.jsonl` are evaluated in the precision of the training, bfloat16, and differ by up to 0.11 points. Madds in millions
for one image, counted as layers (convolutions and linear layers) and as the paper counts (see [metrics](metrics.md));
salience generators, where they stay, are included. Latency: onnxruntime, one image, one thread, milliseconds and share
of the dense network; all networks of a kind are timed side by side in one run. Epochs: those of the dense start + own;
compare rows of equal epochs. Minutes: of the own epochs, on one core of a machine whose other core was busy as well;
minutes say what a row took, not which method is quicker. All rows were trained with PyTorch's own kernels.

| name | method | error | params | madds, layers | madds, paper | mem_access, M | latency | epochs | seed | minutes |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}

The paper's rows, with its own, longer training:

| network | method | error | madds, paper |
|---|---|---|---|
{paper}

## Commands

The data first: `pcshrink data cifar10 --root data/cifar10`. To check a row:

```
pcshrink eval zoo/NAME --data cifar10
```

To train again, the dense network first (bfloat16 sums depend on the processor, so the last digits may differ):

```
{commands}
```

{teachers}
"""
TEACHERS = """Teachers that are not here: `resnet56-4bfd9763.th` is a ResNet-56 with 6.61 % error as published, from the
public repository `pytorch_resnet_cifar10` (Yerlan Idelbayev, BSD licence), sha256
4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367."""


def keep(run: Path, name: str, method: str, command: str, start: str | None) -> None:
    """Copy what is worth keeping of a run."""
    result = json.loads((run / "result.json").read_text())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    folder = ZOO / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("pcshrink.json", "model.safetensors"):
        shutil.copyfile(run / "model" / file, folder / file)
    shutil.copyfile(run / "metrics.jsonl", folder / "log.jsonl")
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe["data"]["root"] = ROOT_OF_DATA  # wherever the data were
    if (recipe.get("distill") or {}).get("weights"):
        recipe["distill"]["weights"] = Path(recipe["distill"]["weights"]).name
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    model = pcshrink.load(folder)
    pcshrink.export_onnx(model, torch.randn(1, 3, 32, 32), folder / "model.onnx")
    data = load_dataset("cifar10", ROOT / ROOT_OF_DATA, DataConfig(eval_batch_size=SLICE))
    images, labels = next(iter(data.val.batches()))
    with torch.no_grad():
        wrong = int((model(images).argmax(-1) != labels).sum())
    before = json.loads((ZOO / start / "results.json").read_text()) if start else None
    figures = {k: v for k, v in result["compact"].items() if not k.startswith("latency")}
    facts: dict[str, Any] = {
        "name": name,
        "network": {"resnet20": "ResNet-20", "resnet32": "ResNet-32"}[recipe["model"]["name"]],
        "method": method,
        "start": start,
        "seed": recipe["seed"],
        "epochs": len(rows),
        "epochs_before": before["epochs"] if before else 0,
        "seconds": round(sum(row["seconds"] for row in rows)),
        "precision": recipe["train"]["precision"],
        "threads": recipe["train"]["threads"],
        "command": command,
        **figures,
        "first_images": {"images": SLICE, "wrong": wrong},
        "cut": result["cut"],
        "widths": result["widths"],
    }
    (folder / "results.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{folder.relative_to(ROOT)}: error {facts['error']:.2f} %")


def kept() -> list[dict[str, Any]]:
    """All results, in a fixed order: by network, dense first, then by error."""
    rows = [json.loads(path.read_text()) for path in ZOO.glob("*/results.json")]
    return sorted(rows, key=lambda row: (row["network"], row["method"] != "dense", row["error"]))


def time_all(threads: int) -> None:
    """Measure every network with the dense one of its kind, in onnxruntime on one image."""
    rows = kept()
    example = torch.randn(1, 3, 32, 32)
    for network, short in (("ResNet-20", "resnet20"), ("ResNet-32", "resnet32")):
        same = [row for row in rows if row["network"] == network]
        if not same:
            continue
        models = {row["name"]: pcshrink.load(ZOO / row["name"]) for row in same}
        models["untrained dense"] = create(short, num_classes=10).eval()
        timed = compare(models, example, "onnxruntime", threads=threads)
        for row in same:
            ratio = timed.ratio(row["name"], "untrained dense")
            row["latency"] = {
                "ms": timed.results[row["name"]].median_ms, "share": ratio.value, "low": ratio.low, "high": ratio.high,
                "runtime": "onnxruntime", "threads": threads, "batch": 1,
            }  # fmt: skip
            (ZOO / row["name"] / "results.json").write_text(json.dumps(row, indent=1) + "\n")


def _row(row: dict[str, Any]) -> str:
    latency = row.get("latency")
    cells = [
        f"[{row['name']}](../zoo/{row['name']})", row["method"], f"{row['error']:.2f}", f"{row['params']:,}",
        f"{row['madds'] / 1e6:.2f}", f"{row['paper_madds'] / 1e6:.2f}", f"{row['mem_access'] / 1e6:.3f}",
        f"{latency['ms']:.3f} ({100 * latency['share']:.0f} %)" if latency else "not measured",
        f"{row['epochs_before']} + {row['epochs']}" if row["start"] else str(row["epochs"]), str(row["seed"]),
        f"{row['seconds'] / 60:.0f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def table() -> None:
    """Write the page."""
    rows = kept()
    parts = {
        "rows": "\n".join(map(_row, rows)),
        "paper": "\n".join(f"| {net} | {method} | {error} | {madds} |" for net, method, error, madds in PAPER),
        "commands": "\n".join(f"{row['command']}  # {row['name']}" for row in rows),
        "teachers": TEACHERS if any("resnet56" in row["command"] for row in rows) else "",
    }
    PAGE.write_text(TEXT.format(**parts).rstrip() + "\n")
    print(PAGE.relative_to(ROOT))


def main() -> None:
    """The three commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("keep", help="copy a finished run into zoo/")
    one.add_argument("run", type=Path)
    one.add_argument("name")
    one.add_argument("--method", required=True)
    one.add_argument("--train-command", required=True, help="how it was made")
    one.add_argument("--start", help="the result it started from")
    timing = commands.add_parser("time", help="measure the latency of all results")
    timing.add_argument("--threads", type=int, default=1)
    commands.add_parser("table", help="write docs/results.md")
    options = parser.parse_args()
    if options.command == "keep":
        keep(options.run, options.name, options.method, options.train_command, options.start)
    elif options.command == "time":
        time_all(options.threads)
    else:
        table()


if __name__ == "__main__":
    main()
