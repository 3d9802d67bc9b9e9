"""The core of two source trees side by side; ``python -m benchmarks.core --against PATH`` calls it.

Each tree gets a process of its own that waits for the name of a task, runs it once and answers with the time. The two
take turns call by call, so what disturbs the machine disturbs both alike. Where a process happens to lie in memory
is worth a percent, so the pair is started several times.
"""

from __future__ import annotations

import copy
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import pcshrink as pcs
from pcshrink.models import build

ROOT = Path(__file__).resolve().parent.parent
Task = Callable[[], object]


def source_of(path: Path) -> Path:
    """The folder that holds the package, from that folder or from the root of a clone."""
    for folder in (path, path / "src"):
        if (folder / "pcshrink" / "__init__.py").is_file():
            return folder.resolve()
    raise SystemExit(f"{path} holds no source of pcshrink: expected a folder with pcshrink/ or src/pcshrink/ in it")


def compare(other: Path, rounds: int, starts: int, threads: int) -> None:
    """Print what every task takes here and there, and the ratio with its interval."""
    from pcshrink.measure.timing import paired_ratio  # only here: the other tree may keep it elsewhere

    here, there = ROOT / "src", source_of(other)
    clock = "CPU time" if threads == 1 else "wall time"
    print(f"here {here}, there {there}")
    print(f"torch {torch.__version__}, {threads} threads, {clock}, {starts} starts of {rounds} rounds")
    times: dict[str, tuple[list[float], list[float]]] = {}
    for _ in range(starts):
        sides = Side(here, threads), Side(there, threads)
        for task in TASKS:
            pair = times.setdefault(task, ([], []))
            for number in range(rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    pair[which].append(sides[which].run(task))
        for side in sides:
            side.close()
    for task, (ours, theirs) in times.items():
        taken = " and ".join(f"{1e3 * statistics.median(side):7.1f} ms" for side in (ours, theirs))
        print(f"{task:34s} {taken}, here/there {paired_ratio(ours, theirs)}")


class Side:
    """A process that runs tasks with one source tree.

    Args:
        source: The folder that holds the package.
        threads: How many threads torch may use.
    """

    def __init__(self, source: Path, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.against", str(source), str(threads)]
        path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, task: str) -> float:
        """Seconds of one call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(task, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{task!r} failed: {' '.join(map(str, self.process.args))}")  # it has said why
        return float(answer)

    def close(self) -> None:
        """Let the process end."""
        self.process.communicate()


def serve(source: Path, threads: int) -> None:
    """Answer every line on stdin, the name of a task, with the seconds of one call."""
    used = Path(str(pcs.__file__)).resolve().parent.parent
    if used != source:
        raise SystemExit(f"pcshrink came from {used} instead of {source}")
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter  # CPU time does not count other processes
    ready: dict[str, Task] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name not in ready:
            ready[name] = TASKS[name]()
            for _ in range(2):
                ready[name]()
        gc.collect()
        gc.disable()
        start = clock()
        ready[name]()
        taken = clock() - start
        gc.enable()
        print(taken, flush=True)


def step_task(*, gated: bool, batch: int = 128) -> Task:
    """One optimizer step of ResNet-20, with gates, penalty and all, or without any (it must be equal on both sides)."""
    torch.manual_seed(0)
    model = build("resnet20").train()
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    shrinker = pcs.attach_(model, x[:2]) if gated else None
    model.train()
    parameters = model.parameters() if shrinker is None else shrinker.param_groups(5e-4)
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        if shrinker is not None:
            loss = loss + shrinker.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if shrinker is not None:
            shrinker.step()

    return step


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network and an input."""
    torch.manual_seed(0)
    if name == "resnet20":
        return build(name), torch.randn(1, 3, 32, 32)
    return torchvision.models.get_model(name, weights=None), torch.randn(1, 3, 224, 224)


def attach_task(name: str) -> Task:
    """Find, prove and gate everything that can shrink."""
    model, x = network(name)
    return lambda: pcs.attach_(copy.deepcopy(model), x)


def compact_task(name: str) -> Task:
    """Cut half of every group, with the proof."""
    model, x = network(name)
    shrinker = pcs.attach_(model, x, pcs.ShrinkConfig(prove=False))
    plan = shrinker.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in shrinker.groups})
    return lambda: pcs.compact(model, plan, x)


TASKS: dict[str, Callable[[], Task]] = {
    "dense step of ResNet-20 (control)": lambda: step_task(gated=False),
    "training step of ResNet-20": lambda: step_task(gated=True),
    "attach_ to ResNet-20": lambda: attach_task("resnet20"),
    "compact ResNet-20": lambda: compact_task("resnet20"),
    "attach_ to ResNet-50": lambda: attach_task("resnet50"),
    "compact ResNet-50": lambda: compact_task("resnet50"),
}


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
