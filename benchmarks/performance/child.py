"""Steps in a process of their own, whose memory nothing else touches: ``python -m benchmarks.performance.child KIND``.

Prints the peak of resident memory that network and steps add, in MB, and the page faults of a later step.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if kind in (FORWARD, ATTACHED):
        once(kind)
        print(json.dumps({"megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}))
        return
    case, mode = CASES[0], MODES[0]
    step = gated_step(case, mode) if kind == "gated" else step_of(case.model(), case.images(case.batch), mode)
    for _ in range(3):
        step()
    used = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(3):
        step()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - used.ru_minflt
    print(json.dumps({"megabytes": (used.ru_maxrss - before) / 1024, "faults": faults / 3}))


def once(kind: str) -> None:
    """Build a ResNet-50; run it once, or put gates on it with all proofs."""
    model, example = create("torchvision:resnet50"), torch.randn(2, 3, 224, 224)
    if kind == ATTACHED:
        pcs.attach_(model, example)
    else:
        model(example)


if __name__ == "__main__":
    main(sys.argv[1])
