"""Torchvision's MobileNetV2 with its ImageNet weights, made faster by ``pcshrink shrink``; writes docs/pretrained.md.

ImageNet, 1,000 images without labels:
python -m benchmarks.pretrained check  --images DIR [--val DIR]                the files are those of the lists
python -m benchmarks.pretrained shrink --images DIR --weights FILE --runs DIR  shrink to 0.8, 0.9 and 0.7 of the latency
python -m benchmarks.pretrained storage --val DIR --weights FILE               the dense network, images stored anew

CIFAR-10 at 64 pixels:
python -m benchmarks.pretrained finetune --cifar DIR --weights FILE --runs DIR  the dense network
python -m benchmarks.pretrained halve    --runs DIR [--budget latency=0.5]      shrink it to half

python -m benchmarks.pretrained table --val DIR --weights FILE --runs DIR      evaluate what is there, write both tables
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.pretrained_cifar10 import finetune, half_table, halve, into
from benchmarks.pretrained_storage import examine
from pcshrink.artifact import load
from pcshrink.data import DataConfig, load_dataset
from pcshrink.export import export_onnx
from pcshrink.models import create
from pcshrink.pretrained.paired import Paired
from pcshrink.runtime.onnxruntime import onnx_runner
from pcshrink.train.weights import load_weights_

LISTS = Path(__file__).parent / "pretrained_files"
PAGE = Path(__file__).parent.parent / "docs" / "pretrained.md"
MODEL = "torchvision:mobilenet_v2"
SHARES = (0.8, 0.9, 0.7)
SETTINGS = ("train.precision=bf16", "data.workers=0", "epochs.settle=4")


def check(folder: Path, listed: str) -> None:
    """The files in a folder are those of a list, byte by byte."""
    wanted = dict(reversed(line.split("  ", 1)) for line in (LISTS / f"{listed}.sha256").read_text().splitlines())
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")}
    wrong = [n for n in wanted if n not in found or hashlib.sha256(found[n].read_bytes()).hexdigest() != wanted[n]]
    if wrong or len(found) != len(wanted):
        sys.exit(f"{folder}: {len(wrong)} of {len(wanted)} files are missing or differ, such as {wrong[:3]}")
    print(f"{folder}: {len(wanted)} files, all as listed")


def shrink(images: Path, weights: Path, runs: Path, shares: tuple[float, ...]) -> None:
    for share in shares:
        words = ["shrink", MODEL, "--weights", str(weights), "--images", str(images), "--no-labels"]
        words += [w for setting in SETTINGS for w in ("--set", setting)]
        words += ["--budget", f"latency={share}", *into(runs / f"mobilenet-{share}")]
        subprocess.run([sys.executable, "-m", "pcshrink", *words], check=True)


def answers(folder: Path, val: Path, weights: Path) -> tuple[Tensor, Tensor]:
    """What a network answers in onnxruntime, and the labels; kept, since all rows have the dense one in common."""
    kept = folder / "imagenet-answers.json"
    if not kept.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        # The weights of this file were made for a shorter side of 256, torchvision's newer ones for 232.
        config = DataConfig(image_size=224, resize_size=256, eval_batch_size=50, workers=0)
        data = load_dataset("folder", val, config, evaluation_only=True)
        model = load(folder / "model") if (folder / "model").is_dir() else create(MODEL)
        if not (folder / "model").is_dir():
            load_weights_(model, weights)
        file, said, labels = folder / "evaluated.onnx", list[int](), list[int]()
        export_onnx(model.eval(), torch.randn(2, *data.input_shape), file, batch="dynamic")
        run = onnx_runner(file, threads=1)
        for batch, wanted in data.val.batches():
            said += run([batch])[0].argmax(dim=-1).tolist()
            labels += wanted.tolist()
        file.unlink()
        kept.write_text(json.dumps({"answers": said, "labels": labels}))
    data_kept = json.loads(kept.read_text())
    return torch.tensor(data_kept["answers"]), torch.tensor(data_kept["labels"])


def evaluate(run: Path, val: Path, weights: Path) -> Paired:
    """Errors of the dense and the shrunk network on the labelled validation images; kept beside the run."""
    kept = run / "imagenet.json"
    if not kept.is_file():
        (first, labels), (second, _) = (answers(folder, val, weights) for folder in (run.parent / "dense", run))
        bad = first != labels, second != labels
        changed = int((bad[1] & ~bad[0]).sum()), int((bad[0] & ~bad[1]).sum())
        wrong = int(bad[0].sum()), int(bad[1].sum())
        paired = Paired.of_counts(len(labels), wrong, changed, int((first == second).sum()))
        kept.write_text(json.dumps(paired.to_dict(), indent=1))
    figures = json.loads(kept.read_text())
    figures.pop("difference")
    return Paired(**figures)


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


def write(name: str, content: str) -> None:
    """Put a table between its two marks in the page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "shrink", "storage", "finetune", "halve", "table"))
    for name in ("images", "val", "weights", "runs", "cifar"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--share", type=float, choices=SHARES, help="one run of shrink instead of all three")
    parser.add_argument("--budget", choices=("madds=0.5", "latency=0.5"), help="one run of halve instead of both")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "check":
        for folder, listed in ((given.images, "train-1000"), (given.val, "val-5000")):
            if folder is not None:
                check(folder, listed)
    elif given.what == "shrink":
        shrink(given.images, given.weights, given.runs, SHARES if given.share is None else (given.share,))
    elif given.what == "storage":
        print(examine(given.val, given.weights))
    elif given.what == "finetune":
        finetune(given.cifar, given.weights, given.runs)
    elif given.what == "halve":
        halve(given.runs, given.budget)
    else:
        write("table", table(given.val, given.weights, given.runs))
        write("halves", half_table(given.runs))


if __name__ == "__main__":
    main()
