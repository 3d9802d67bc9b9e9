"""Steps in a process of their own, whose memory nothing else touches: ``python -m benchmarks.performance.child KIND``.

Prints the peak of resident memory that network and steps add, in MB, and the page faults of a later step.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

import pcshrink as pcs
from benchmarks.performance.steps import CASES, MODES, gated_step, step_of
from pcshrink.common.allocator import keep_freed_memory
from pcshrink.models import create

KINDS = ("dense", "gated", "dense without the allocator's setting")
FORWARD, ATTACHED = "forward", "attached"


def measured(kind: str) -> dict[str, float]:
    """Peak and faults of one kind of step, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.performance.child", kind]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main(kind: str) -> None:
    """Take steps, and print what they needed."""
    torch.set_num_threads(1)
    if kind != KINDS[2]:
        keep_freed_memory()
    # Before anything is built: what attach_ needs for a moment would otherwise count as there before the steps.
    before = peak()
    if kind in (FORWARD, ATTACHED):
        once(kind)
        print(json.dumps({"megabytes": peak() - before}))
        return
    case, mode = CASES[0], MODES[0]
    step = gated_step(case, mode) if kind == "gated" else step_of(case.model(), case.images(case.batch), mode)
    for _ in range(3):
        step()
    needed, touched = peak() - before, resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        step()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - touched
    print(json.dumps({"megabytes": needed, "faults": faults / 3}))


def peak() -> float:
    """Of resident memory so far, in MB. What ``getrusage`` tells includes the peak of the process that started this."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def once(kind: str) -> None:
    """Build a ResNet-50; run it once, or put gates on it with all proofs."""
    model, example = create("torchvision:resnet50"), torch.randn(2, 3, 224, 224)
    if kind == ATTACHED:
        pcs.attach_(model, example)
    else:
        model(example)


if __name__ == "__main__":
    main(sys.argv[1])
