"""Which of the method's free choices matter: short runs of ResNet-20 on CIFAR-10 that differ in one setting each.

    python -m benchmarks.findings --data DIR --runs DIR            # run what is missing, then write docs/findings.md
    python -m benchmarks.findings --data DIR --runs DIR --only base inner

All runs start from the same short dense training, see the same images in the same order and meet the same budget. Runs
that were stopped go on where they were.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMON = ["train.channels_last=true"]
START = ["epochs.dense=4", "optimizer.lr=0.1", "optimizer.lr_warmup=0"]
BASE = [
    "epochs.dense=0", "epochs.warmup=0", "epochs.shrink=5", "epochs.settle=5", "shrink.budget.madds=17600000",
    "shrink.compact_every=2", "output.latency=false",
]  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
PAGE, FIGURES = ROOT / "docs" / "findings.md", Path(__file__).with_suffix(".json")
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
ZERO = 1e-3  # below it a running salience counts as zero
AFTER = "--gates-after-sums"  # the next words are a command of pcshrink
STREAMS = '["conv1","layer2.0.conv2","layer3.0.conv2"]'
VARIANTS: dict[str, list[str]] = {
    "base": [],
    "inner": [f"shrink.exclude={STREAMS}"],
    "falling": ["optimizer.hold_lr=false"],
    "uniform": ["shrink.allocation=uniform"],
    "strength-a": ["shrink.strength=A"],
    "strength-c": ["shrink.strength=C"],
    "no-norm": ["shrink.generator_norm=false"],
    "fold": ["shrink.gates=fold"],
    "truncate": ["shrink.method=truncation"],
    "after-sum": [],
    "base-seed1": ["seed=1"],
}


def gates_after_sums() -> None:
    """Move the gates of the residual streams from the layers that are added to the sum itself, a block's output."""
    import dataclasses

    from pcshrink import shrinker
    from pcshrink.coupling.units import Site

    discover = shrinker.discover

    def moved(*args: Any, **options: Any) -> Any:
        coupling = discover(*args, **options)
        for number, group in enumerate(coupling.groups):
            if len(group.sites) == 1:
                continue
            sites = []
            for site in group.sites:
                block, _, layer = site.module.rpartition(".")
                if layer == "bn2":
                    coupling.ledger.gates[Site(block)] = coupling.ledger.gates[site]
                    sites.append(Site(block))
                elif "downsample" not in block:
                    sites.append(site)
            coupling.groups[number] = dataclasses.replace(group, sites=tuple(sites))
        return coupling

    shrinker.discover = moved


def train(recipe: str, out: Path, data: Path, settings: list[str]) -> None:
    """One run from the beginning or from where it was stopped."""
    if (out / "result.json").is_file():
        return
    program = ["-m", "benchmarks.findings", AFTER] if out.name == "after-sum" else ["-m", "pcshrink"]
    command = [sys.executable, *program, "train", recipe, "--out", str(out), "--set", f"data.root={data}"]
    for setting in settings:
        command += ["--set", setting]
    if (out / "checkpoints").is_dir():
        command.append("--resume")
    print(out.name, flush=True)
    subprocess.run(command, check=True)


def write_table(runs: Path) -> None:
    """Put the figures of all finished runs into docs/findings.md; those of runs that are elsewhere stay."""
    known: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.is_file() else {}
    for name in VARIANTS:
        path = runs / name / "result.json"
        if not path.is_file():
            continue
        result, log = json.loads(path.read_text()), (runs / name / "metrics.jsonl").read_text()
        rows = [json.loads(line) for line in log.splitlines()]
        pushed = [row for row in rows if row["phase"] == "shrink"]
        zero = [row["epoch"] + 1 for row in pushed if (row.get("highest_selected") or 0.0) <= ZERO]
        known[name] = {
            "settings": VARIANTS[name], "error": result["compact"]["error"], "loss": result["compact"]["loss"],
            "paper_madds": result["compact"]["paper_madds"], "highest_selected": result["cut"]["highest"],
            "all_zero_after": zero[0] if zero else None, "error_at_cut": pushed[-1]["error"],
        }  # fmt: skip
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")
    lines = ["| run | differs in | error | test loss | madds, paper | all selected zero after | error at the cut |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in [name for name in VARIANTS if name in known]:
        row = known[name]
        after = f"{row['all_zero_after']} epochs" if row["all_zero_after"] else f"not ({row['highest_selected']:.2f})"
        after = "-" if "shrink.method=truncation" in row["settings"] else after
        changes = ", ".join(f"`{s}`" for s in row["settings"]) or ("gates after the sums" if "sum" in name else "-")
        madds = f"{row['paper_madds'] / 1e6:.2f}"
        lines.append(f"| {name} | {changes} | {row['error']:.2f} | {row['loss']:.3f} | {madds} | "
                     f"{after} | {row['error_at_cut']:.2f} |")  # fmt: skip
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--runs", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=list(VARIANTS), help="which runs")
    parser.add_argument("--set", nargs="*", default=[], help="settings for all runs, such as train.precision=bf16")
    options = parser.parse_args()
    common = COMMON + options.set
    start = options.runs / "start"
    train("cifar10-resnet20-dense", start, options.data, START + common)
    weights = f"model.weights={start / 'model' / 'model.safetensors'}"
    for name in options.only:
        settings = [weights, *BASE, *common, *VARIANTS[name]]
        train("cifar10-resnet20", options.runs / name, options.data, settings)
        write_table(options.runs)  # after each, so that nothing is lost when a later one fails
    write_table(options.runs)


if __name__ == "__main__":
    if sys.argv[1:2] == [AFTER]:
        from pcshrink.cli.main import main as pcshrink_main

        gates_after_sums()
        del sys.argv[1]
        pcshrink_main()
    else:
        main()
