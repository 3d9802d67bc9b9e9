"""What a run on ImageNet would take: figures measured on this machine, and what follows from them on paper.

    python -m benchmarks.scale [--images 256] [--batch 4] [--rounds 3] [--write]

Measured in time of one core with made-up images: the loader on folders and on shards, a training step of each network
dense and gated; by the clock, the best of several: the all-reduce of torch's gloo between two processes. Counted from
the networks: what they exchange in a step. Computed: the time of the recipes' epochs. `--write` puts the tables into
docs/scale.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from PIL import Image
from torch import nn

import pcshrink as pcs
from pcshrink.common.child import free_port
from pcshrink.data import DataConfig, load_dataset, write_shards

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
BEGIN, END = "<!-- figures: python -m benchmarks.scale --write -->", "<!-- end of figures -->"
NETWORKS = {"resnet18": "ResNet-18", "resnet34": "ResNet-34", "vgg16": "VGG-16"}
TRAINING_IMAGES, EPOCHS, BATCH = 1_281_167, 121, 256  # ImageNet, and the recipes imagenet-*.yaml
SIZE = (500, 375)  # pixels of a usual ImageNet image
NUMBER = 4  # bytes of a float32
DEVICE_IMAGES = 1000  # a second of ResNet-18; an example, nothing here has measured it
DEVICES, GIGABITS = 8, (1, 10, 100)


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes that every process hands over in a step, and calls for them.

    Attributes:
        gradients: Of the dense network.
        generators: Gradients of what shrinking adds.
        saliences: Running saliences, one number a gated channel.
        norms: Sums of batch norms that share their statistics: two there and two back.
        norm_calls: As many exchanges, which wait for each other.
    """

    gradients: int
    generators: int
    saliences: int
    norms: int
    norm_calls: int

    @property
    def total(self) -> int:
        return self.gradients + self.generators + self.saliences + self.norms


def take_turns(rounds: int, *contestants: Callable[[], object]) -> list[float]:
    """The median seconds of each, after one warm-up; of the processor, so that other work here is left out."""
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds + 1):
        for record, contestant in zip(times, contestants, strict=True):
            began = time.process_time()
            contestant()
            record.append(time.process_time() - began)
    return [statistics.median(record[1:]) for record in times]


def photograph(number: int) -> bytes:
    """A made-up JPEG as large as a usual one: shades, edges and some grain."""
    chance = np.random.default_rng(number)
    shades = Image.fromarray(chance.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize(
        SIZE, Image.Resampling.BICUBIC
    )
    pixels = np.asarray(shades, dtype=np.int16) + chance.normal(0, 13, (SIZE[1], SIZE[0], 1)).astype(np.int16)
    stream = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def measure_loader(images: int, rounds: int) -> dict[str, float]:
    """Images a second of one loading process."""
    with tempfile.TemporaryDirectory() as place:
        folder, shards = Path(place, "folder"), Path(place, "shards")
        sizes = []
        for number in range(images):
            home = folder / ("train", "val")[number % 2] / str(number // 2 % 4)
            home.mkdir(parents=True, exist_ok=True)
            sizes.append((home / f"{number:05d}.jpg").write_bytes(photograph(number)))
        write_shards(folder, shards, progress=False)
        config = DataConfig(batch_size=images // 2, eval_batch_size=32, workers=0)
        folders, packed = load_dataset("folder", folder, config), load_dataset("webdataset", shards, config)
        runs: list[Callable[[], object]] = [lambda d=d: list(d.train.batches(0)) for d in (folders, packed)]  # type: ignore[misc]
        runs += [lambda d=d: list(d.val.batches()) for d in (folders, packed)]  # type: ignore[misc]
        times = take_turns(rounds, *runs)
        names = ("folder, training", "shards, training", "folder, evaluation", "shards, evaluation")
        speeds = {name: (images // 2) / seconds for name, seconds in zip(names, times, strict=True)}
        return speeds | {"bytes": statistics.mean(sizes)}


def measure_steps(name: str, batch: int, rounds: int) -> tuple[float, float, Traffic]:
    """Seconds of a dense and of a shrinking step, and what several processes would exchange in it."""
    torch.manual_seed(0)
    dense = torchvision.models.get_model(name, weights=None).train()
    gated = torchvision.models.get_model(name, weights=None)
    x, y = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    shrinker = pcs.attach_(gated, x[:1], pcs.ShrinkConfig(prove=False))
    gated.train()
    shrinker.method.steps = 500
    optimizers = {model: torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9) for model in (dense, gated)}

    def step(model: nn.Module) -> None:
        loss = F.cross_entropy(model(x), y)
        if model is gated:
            loss = loss + shrinker.penalty()
        loss.backward()
        optimizers[model].step()
        optimizers[model].zero_grad()
        if model is gated:
            shrinker.step()

    plain, shrinking = take_turns(rounds, lambda: step(dense), lambda: step(gated))
    return plain, shrinking, count_traffic(dense, gated)


def count_traffic(dense: nn.Module, gated: nn.Module) -> Traffic:
    """From the networks themselves."""
    weights, all_weights = (sum(p.numel() for p in net.parameters()) for net in (dense, gated))
    norms = [m.num_features for m in dense.modules() if isinstance(m, nn.BatchNorm2d)]
    running = sum(buffer.numel() for name, buffer in gated.named_buffers() if name.endswith(".running"))
    return Traffic(
        gradients=NUMBER * weights, generators=NUMBER * (all_weights - weights), saliences=NUMBER * running,
        norms=4 * NUMBER * sum(norms), norm_calls=4 * len(norms),
    )  # fmt: skip


def _exchange(rank: int, port: int, sizes: list[int], rounds: int, answer: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for size in sizes:
        numbers, times = torch.ones(size // NUMBER), []
        for _ in range(rounds + 1):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(numbers)
            times.append(time.perf_counter() - began)
        if rank == 0:
            answer.put((size, min(times[1:])))  # the rest is other work on the machine
    dist.destroy_process_group()


def measure_exchange(sizes: list[int], rounds: int) -> dict[int, float]:
    """Seconds of an all-reduce between two processes for each number of bytes."""
    context = torch.multiprocessing.get_context("spawn")
    answer, port = context.SimpleQueue(), free_port()
    peers = [context.Process(target=_exchange, args=(rank, port, sizes, rounds, answer)) for rank in range(2)]
    for peer in peers:
        peer.start()
    for peer in peers:
        peer.join()
        if peer.exitcode:
            raise SystemExit(f"a process of the exchange ended with {peer.exitcode}")
    return dict(answer.get() for _ in sizes)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def amount(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def measured_tables(
    loader: dict[str, float], steps: dict[str, tuple[float, float, Traffic]], exchange: dict[int, float], batch: int
) -> str:
    """What was measured and what was counted."""
    speeds = [[name, f"{speed:.0f}"] for name, speed in loader.items() if name != "bytes"]
    rows, sent = [], []
    for name, (dense, gated, traffic) in steps.items():
        rows.append(
            [NETWORKS[name], f"{dense:.2f} s", f"{gated:.2f} s", f"{gated / dense:.2f}", f"{batch / gated:.2f}"]
        )
        parts = (traffic.gradients, traffic.generators, traffic.saliences, traffic.norms)
        own = traffic.total / traffic.gradients - 1
        waits = f"{1e3 * exchange[traffic.gradients]:.0f} ms, {1e3 * exchange[traffic.saliences]:.2f} ms"
        sent.append([NETWORKS[name], *map(amount, parts), str(traffic.norm_calls), f"{own:.1%}", waits])
    return "\n\n".join([
        f"Measured: images a second of one core that only loads, JPEGs of {SIZE[0]} x {SIZE[1]} pixels and "
        f"{loader['bytes'] / 1e3:.0f} kB, to 224 x 224.",
        table(["loader", "images/s"], speeds),
        f"Measured: a step at 224 x 224 with a batch of {batch}, float32, one core.",
        table(["network", "dense", "shrinking", "ratio", "images/s shrinking"], rows),
        "Counted: what a process hands over in a step. Measured: one all-reduce between two processes on one "
        "machine, of all gradients at once and of the saliences.",
        table(["network", "gradients", "of generators", "saliences", "norms", "exchanges of norms", "all but "
               "gradients, share of these", "all-reduce of gradients, saliences"], sent),
    ])  # fmt: skip


def computed_tables(loader: dict[str, float], steps: dict[str, tuple[float, float, Traffic]], batch: int) -> str:
    """What follows for ImageNet."""
    loads, first = loader["shards, training"], steps["resnet18"][1]
    here, there = [], []
    for name, (_, gated, traffic) in steps.items():
        speed = 1 / (1 / (batch / gated) + 1 / loads)
        here.append([NETWORKS[name], f"{speed:.2f}", f"{TRAINING_IMAGES * EPOCHS / speed / 86400:,.0f} days"])
        device = DEVICE_IMAGES * first / gated
        compute = BATCH / (DEVICES * device)
        waits = [2 * (DEVICES - 1) / DEVICES * 8 * traffic.total / (1e9 * rate) for rate in GIGABITS]
        days = [TRAINING_IMAGES / BATCH * EPOCHS * (compute + wait) / 86400 for wait in waits]
        there.append(
            [NETWORKS[name], f"{device:.0f}", f"{device / loads:.1f}", f"{1e3 * compute:.0f} ms"]
            + [f"{1e3 * wait:.0f} ms, {day:.1f} days" for wait, day in zip(waits, days, strict=True)]
        )
    rates = [f"{rate} Gbit/s: exchange, run" for rate in GIGABITS]
    return "\n\n".join([
        f"Computed: a run of {EPOCHS} epochs of {TRAINING_IMAGES:,} images on one core that also loads them.",
        table(["network", "images/s", "run"], here),
        f"Computed for {DEVICES} machines with one device each, a batch of {BATCH}, and an **assumed** device that "
        f"trains {DEVICE_IMAGES} images a second of ResNet-18; the others in the measured proportion of steps.",
        table(["network", "images/s of a device", "loading processes for it", "step without exchange", *rates], there),
    ])  # fmt: skip


def write_page(text: str) -> None:
    """Between the two marks of the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    """Measure, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256, help="for the loader; half of them for each part")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loader = measure_loader(options.images, options.rounds)
    steps = {name: measure_steps(name, options.batch, options.rounds) for name in NETWORKS}
    sizes = {size for _, _, traffic in steps.values() for size in (traffic.gradients, traffic.saliences)}
    exchange = measure_exchange(sorted(sizes), max(options.rounds, 5))
    text = (
        measured_tables(loader, steps, exchange, options.batch) + "\n\n" + computed_tables(loader, steps, options.batch)
    )
    print(text)
    if options.write:
        write_page(text)


if __name__ == "__main__":
    main()
