"""Torchvision's MobileNetV2 with its ImageNet weights, shrunk with 1,000 unlabelled images; writes docs/pretrained.md.

python -m benchmarks.pretrained check  --images DIR [--val DIR]                the files are those of the lists
python -m benchmarks.pretrained shrink --images DIR --weights FILE --runs DIR  shrink to 0.8, 0.9 and 0.7 of the latency
python -m benchmarks.pretrained table  --val DIR --weights FILE --runs DIR     evaluate what is there, write the table
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import torch

from pcshrink.artifact import load
from pcshrink.data import DataConfig, load_dataset
from pcshrink.models import create
from pcshrink.pretrained.paired import Paired, compare_errors
from pcshrink.train.weights import load_weights_

LISTS = Path(__file__).parent / "pretrained_files"
PAGE = Path(__file__).parent.parent / "docs" / "pretrained.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
MODEL = "torchvision:mobilenet_v2"
SHARES = (0.8, 0.9, 0.7)
SETTINGS = ("train.precision=bf16", "data.workers=0")


def check(folder: Path, listed: str) -> None:
    """The files in a folder are those of a list, byte by byte."""
    wanted = dict(reversed(line.split("  ", 1)) for line in (LISTS / f"{listed}.sha256").read_text().splitlines())
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")}
    wrong = [n for n in wanted if n not in found or hashlib.sha256(found[n].read_bytes()).hexdigest() != wanted[n]]
    if wrong or len(found) != len(wanted):
        sys.exit(f"{folder}: {len(wrong)} of {len(wanted)} files are missing or differ, such as {wrong[:3]}")
    print(f"{folder}: {len(wanted)} files, all as listed")


def shrink(images: Path, weights: Path, runs: Path) -> None:
    for share in SHARES:
        words = ["shrink", MODEL, "--weights", str(weights), "--images", str(images), "--no-labels", "--resume"]
        words += [w for setting in SETTINGS for w in ("--set", setting)]
        words += ["--budget", f"latency={share}", "--out", str(runs / f"mobilenet-{share}")]
        subprocess.run([sys.executable, "-m", "pcshrink", *words], check=True)


def evaluate(run: Path, val: Path, weights: Path) -> Paired:
    """Errors of the dense and the shrunk network on the labelled validation images; kept beside the run."""
    kept = run / "imagenet.json"
    if kept.is_file():
        figures = json.loads(kept.read_text())
        figures.pop("difference")
        return Paired(**figures)
    dense = create(MODEL)
    load_weights_(dense, weights)
    # The weights of this file were made for a shorter side of 256, torchvision's newer ones for 232.
    config = DataConfig(image_size=224, resize_size=256, eval_batch_size=50, workers=0)
    data = load_dataset("folder", val, config, evaluation_only=True)
    paired = compare_errors(dense, load(run / "model"), data.val)
    kept.write_text(json.dumps(paired.to_dict(), indent=1))
    return paired


def table(val: Path, weights: Path, runs: Path) -> str:
    lines = ["| latency asked | latency measured | madds | error dense | error shrunk | difference, 95 % interval |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for share in sorted(SHARES, reverse=True):
        run = runs / f"mobilenet-{share}"
        if not (run / "shrunk.json").is_file():
            lines.append(f"| {share} | not run | | | | |")
            continue
        shrunk, paired = json.loads((run / "shrunk.json").read_text()), evaluate(run, val, weights)
        lines.append(
            f"| {share} | {shrunk['latency']:.3f} ({shrunk['latency_low']:.3f} to {shrunk['latency_high']:.3f}) | "
            f"{shrunk['madds']:.3f} | {paired.first_error:.2f} % | {paired.second_error:.2f} % | "
            f"{paired.difference:+.2f} ({paired.low:+.2f} to {paired.high:+.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "shrink", "table"))
    for name in ("images", "val", "weights", "runs"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "check":
        for folder, listed in ((given.images, "train-1000"), (given.val, "val-5000")):
            if folder is not None:
                check(folder, listed)
    elif given.what == "shrink":
        shrink(given.images, given.weights, given.runs)
    else:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table(given.val, given.weights, given.runs)}\n{END}{after}")


if __name__ == "__main__":
    main()
