"""Realised speed: what half of the multiply-adds is worth in onnxruntime, on one core, batch 1 and 32.

    python -m benchmarks.latency [--nets resnet18,vgg16] [--batch 1,32] [--seconds 3] [--runtime onnxruntime]

For each network, in the same interleaved rounds: dense; compact with aligned widths, folded; a plain network of the
very same widths; compact with its generators kept; compact with unaligned widths at equal madds. Weights are random,
all groups keep the same share. Ratios are medians over the rounds of two neighbours in the same round. One thread, so
CPU time is measured: on an idle machine it is the latency, on a busy one it leaves the others' share out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

import pcshrink as pcs
from pcshrink.artifact import load, save
from pcshrink.measure.layers import Layer, layers_of, narrowed
from pcshrink.measure.timing import Ratio, interleave, median_interval, paired_ratio, settled
from pcshrink.measure.widths import measure_staircase
from pcshrink.methods.select import by_pattern, count
from pcshrink.models import create
from pcshrink.runtime.run import ready, use_threads
from pcshrink.surgery.cut import apply_plan
from pcshrink.surgery.gates import remove_gates_
from pcshrink.surgery.plan import PrunePlan

NETS = ("resnet18", "resnet34", "vgg16", "mobilenet_v2")


def madds(layers: dict[str, list[Layer]]) -> int:
    return sum(layer.madds for calls in layers.values() for layer in calls)


def plan_at(
    shrinker: pcs.Shrinker, layers: dict[str, list[Layer]], share: float, align: int | Mapping[str, int]
) -> tuple[PrunePlan, float]:
    """All groups at one ratio, aligned, so that this share of the madds is left; then filled up one by one."""

    def plan(kept: dict[str, int]) -> PrunePlan:
        return shrinker.plan({g.name: torch.arange(g.channels) < kept[g.name] for g in shrinker.groups})

    def at(ratio: float) -> dict[str, int]:
        return {g.name: g.channels - count(1 - ratio, g.channels, 1, step[g.name]) for g in shrinker.groups}

    def left(kept: dict[str, int]) -> float:
        return madds(narrowed(layers, plan(kept))) / whole

    step = {group.name: by_pattern(align, group.writers, 1) for group in shrinker.groups}
    whole, low, high = madds(layers), 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if left(at(middle)) <= share else (low, middle)
    kept = at(low)
    for group in reversed(shrinker.groups):  # late layers first: their small maps take the least time for their madds
        wider = kept | {group.name: min(kept[group.name] + step[group.name], group.channels)}
        kept = wider if left(wider) <= share else kept
    return plan(kept), left(kept)


def contestants(name: str, align: int) -> tuple[dict[str, nn.Module], dict[str, float], torch.Tensor]:
    """The networks, and the share of the madds that each has left."""
    torch.manual_seed(0)
    model, example = create(f"torchvision:{name}").eval(), torch.randn(1, 3, 224, 224)
    dense = create(f"torchvision:{name}").eval()
    layers = layers_of(dense, example)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(prove=False))
    aligned, share = plan_at(shrinker, layers, 0.5, align)
    unaligned, odd_share = plan_at(shrinker, layers, share, 1)
    plain = apply_plan(dense, PrunePlan(**{**vars(aligned), "gates": ()}))
    remove_gates_(plain)
    networks = {
        "dense": dense,
        "aligned, folded": pcs.compact(model, aligned, example, gates="fold"),
        "plain, same widths": plain,
        "generators kept": pcs.compact(model, aligned, example),
        "unaligned, folded": pcs.compact(model, unaligned, example, gates="fold"),
    }
    shares = dict.fromkeys(networks, share) | {"dense": 1.0, "unaligned, folded": odd_share}
    storage(name, dense, networks["aligned, folded"], aligned)
    return networks, shares, example


def storage(name: str, dense: nn.Module, small: nn.Module, plan: PrunePlan) -> None:
    """Size of the artifact, and the time to load it beside a plain load."""
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        torch.save(dense.state_dict(), place / "dense.pth")
        save(place / "artifact", small, plan, f"torchvision:{name}")
        save_file(dense.state_dict(), place / "dense.safetensors")
        save_file(small.state_dict(), place / "small.safetensors")

        def plainly() -> None:
            state = load_file(place / "small.safetensors")
            create(f"torchvision:{name}")
            del state

        times = interleave({"artifact": lambda: load(place / "artifact"), "plain": plainly}, 1.0, least_rounds=7)
        size = (
            sum(file.stat().st_size for file in (place / "artifact").iterdir()) / (place / "dense.pth").stat().st_size
        )
    ratio = settled(times["artifact"]) / settled(times["plain"])
    print(f"{name}: artifact {size:.3f} of the dense state_dict; it loads in {settled(times['artifact']):.2f} s, "
          f"{ratio:.2f} x safetensors load plus construction (at most 1.5)", flush=True)  # fmt: skip


def run(name: str, batches: list[int], runtime: str, seconds: float, align: int) -> None:
    networks, shares, example = contestants(name, align)
    for batch in batches:
        with use_threads(1):
            inputs = example.expand(batch, -1, -1, -1).contiguous()
            calls = {n: ready(m, inputs, runtime, 1) for n, m in networks.items()}  # type: ignore[arg-type]
            times = interleave(calls, seconds, least_rounds=9 if batch > 1 else 15, clock=time.process_time)
        del calls
        print(f"\n{name}, batch {batch}: {len(times['dense'])} rounds")
        print(f"{'':20}  madds  median ms    5 % ms  x dense [99 % interval]  realised cut / madds cut")
        for n, taken in times.items():
            ratio = paired_ratio(taken, times["dense"])
            realised = f"{(1 - ratio.value) / (1 - shares[n]):.2f}" if shares[n] < 1 else ""
            print(f"{n:20}  {shares[n]:5.3f}  {1e3 * median_interval(taken)[0]:9.2f}  {1e3 * settled(taken):8.2f}  "
                  f"{show(ratio):23}  {realised}")  # fmt: skip
        plain, folded = times["plain, same widths"], times["aligned, folded"]
        print(f"folded / plain {show(paired_ratio(folded, plain))} (at most 1.02); generators kept / plain "
              f"{show(paired_ratio(times['generators kept'], plain))} (at most 1.15); "
              f"unaligned / aligned {show(paired_ratio(times['unaligned, folded'], folded))}", flush=True)  # fmt: skip


def show(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long to measure each network")
    parser.add_argument("--align", type=int, default=0, help="0 measures the staircase of this machine first")
    words = parser.parse_args()
    start = time.perf_counter()
    load_average = os.getloadavg()[0]
    align = words.align
    if not align:
        stairs = measure_staircase(words.runtime, threads=1)
        print(stairs)
        align = stairs.align
    print(f"{words.runtime}, one thread, align {align}; load average {load_average:.1f}\n", flush=True)
    for name in words.nets.split(","):
        run(name, [int(b) for b in words.batch.split(",")], words.runtime, words.seconds, align)
        print(flush=True)
    print(f"{time.perf_counter() - start:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
