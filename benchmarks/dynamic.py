"""Real time of a network that chooses channels for each input: does indexing pay?

    python -m benchmarks.dynamic [--nets resnet20,torchvision:resnet18] [--share 0.5] [--seconds 3]

ManiDP with thresholds that leave about the asked share of the multiply-adds, at batch 1, in eager mode, one thread.
In the same interleaved rounds:

- dense: the plain network;
- masked: all channels are computed, those not chosen multiplied by zero; what training does;
- indexed: the saliences are computed, the chosen filters gathered, and the smaller convolutions run;
- indexed, chosen before: the same with choice and kernels made beforehand, so that only the convolutions are left;
- compact: Progressive Channel-Shrinking at the same multiply-adds, the same share of all channels, folded.

Norms are folded into convolutions everywhere but in the masked network, whose gates sit behind them. Weights are
random, what is chosen is not: the indexed network gives the masked one's output. Ratios are medians over the rounds of
two neighbours in the same round, of the CPU time of one thread.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs
from benchmarks.latency import plan_at, show
from pcshrink.export.fold_norms import fold_norms
from pcshrink.measure.activity import Activity, activity
from pcshrink.measure.layers import layers_of
from pcshrink.measure.timing import interleave, median_interval, paired_ratio
from pcshrink.methods.manidp import ManiDPConfig, ManiDPGate
from pcshrink.models import create
from pcshrink.runtime.run import use_threads
from pcshrink.surgery.gates import find_gates
from testing.nets import settle_norms_

NETS = {"resnet20": (3, 32, 32), "torchvision:resnet18": (3, 224, 224)}


class Chosen:
    """A convolution with its norm folded in, of which only some filters run for an input."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, gate: ManiDPGate) -> None:
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        self.weight = (conv.weight * scale[:, None, None, None]).detach()
        self.bias = (norm.bias - norm.running_mean * scale).detach()
        self.stride, self.padding, self.gate = conv.stride, conv.padding, gate

    def choose(self, pooled: Tensor, have: Tensor | None) -> tuple[Tensor, Tensor]:
        """The channels that pass for an input, and their saliences; ``have`` are the input channels that there are."""
        first = self.gate.fc1.weight if have is None else self.gate.fc1.weight[:, have]
        hidden = F.relu(F.linear(pooled, first))
        salience = F.relu(self.gate.fc2(hidden))[0].clamp(max=float(self.gate.spec.settings["clamp"]))
        kept = (salience * (salience >= self.gate.threshold)).nonzero().flatten()
        return kept, salience[kept]

    def gather(self, kept: Tensor, have: Tensor | None) -> tuple[Tensor, Tensor]:
        weight = self.weight.index_select(0, kept)
        return weight if have is None else weight.index_select(1, have), self.bias.index_select(0, kept)

    def run(self, x: Tensor, kernel: tuple[Tensor, Tensor]) -> Tensor:
        return F.conv2d(x, *kernel, self.stride, self.padding)


class IndexedBlock(nn.Module):
    """A basic residual block, one image at a time, with the chosen channels only.

    ``remember`` keeps what was chosen and gathered for the first image.
    """

    def __init__(self, block: Any, folded: Any, *, remember: bool) -> None:
        super().__init__()
        self.first = Chosen(block.conv1, block.bn1, block.bn1.pcs_gate)
        self.second = Chosen(block.conv2, block.bn2, block.bn2.pcs_gate)
        self.downsample = folded.downsample
        self.remember = remember
        self.memory: dict[str, Any] = {}

    def decide(self, layer: str, x: Tensor, have: Tensor | None) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        if layer in self.memory:
            return self.memory[layer]  # type: ignore[no-any-return]
        chosen: Chosen = getattr(self, layer)
        kept, salience = chosen.choose(x.mean(dim=(2, 3)), have)
        decision = kept, salience[:, None, None], chosen.gather(kept, have)
        if self.remember:
            self.memory[layer] = decision
        return decision

    def forward(self, x: Tensor) -> Tensor:
        kept, salience, kernel = self.decide("first", x, None)
        y = F.relu(self.first.run(x, kernel)).mul_(salience)
        wrote, salience, kernel = self.decide("second", y, kept)
        z = self.second.run(y, kernel).mul_(salience)
        same = self.downsample is None or isinstance(self.downsample, nn.Identity)
        total = x.clone() if same else self.downsample(x)
        return F.relu_(total.index_add_(1, wrote, z))


def indexed(net: nn.Module, example: Tensor, *, remember: bool = False) -> nn.Module:
    """The same network with indexed blocks, all other norms folded."""
    bare = copy.deepcopy(net)
    pcs.detach_(bare)
    folded, _ = fold_norms(bare, example)
    for name, module in net.named_modules():
        if all(isinstance(getattr(getattr(module, bn, None), "pcs_gate", None), ManiDPGate) for bn in ("bn1", "bn2")):
            parent, _, leaf = name.rpartition(".")
            block = IndexedBlock(module, folded.get_submodule(name), remember=remember)
            setattr(folded.get_submodule(parent), leaf, block)
    return folded.eval()


def set_share(net: nn.Module, images: Tensor, share: float) -> Activity:
    """Thresholds at one quantile of all saliences, so that the mean image costs this share of the madds."""
    heard: dict[str, Tensor] = {}
    gates = {name: gate for name, gate in find_gates(net).items() if isinstance(gate, ManiDPGate)}
    for name, gate in gates.items():
        gate.listener = lambda factor, name=name: heard.update({name: factor})  # type: ignore[misc]
    with torch.no_grad():
        net(images)
    for gate in gates.values():
        gate.listener = None
    low, high = 0.0, 1.0
    for _ in range(8):
        middle = (low + high) / 2
        for name, gate in gates.items():
            gate.threshold = float(heard[name].flatten().quantile(middle))
        found = activity(net, [images])
        low, high = (middle, high) if found.share > share else (low, middle)
    return found


def contestants(name: str, share: float, align: int) -> tuple[dict[str, nn.Module], dict[str, float], Tensor]:
    torch.manual_seed(0)
    images = torch.randn(8, *NETS[name])
    dense = settle_norms_(create(name).eval(), images).eval()
    masked = copy.deepcopy(dense)
    pcs.attach_(masked, images[:2], ManiDPConfig())
    masked.eval()
    set_share(masked, images, share)
    image = images[:1]
    cost = activity(masked, [image]).share
    quick, before = indexed(masked, image), indexed(masked, image, remember=True)
    with torch.no_grad():
        for other in (quick, before):
            gap = float((masked(image) - other(image)).abs().max() / masked(image).abs().max())
            assert gap < 1e-4, f"{name}: the indexed network differs by {gap:.2g}"
    small = copy.deepcopy(dense)
    shrinker = pcs.attach_(small, image, pcs.ShrinkConfig(prove=False))
    plan, left = plan_at(shrinker, layers_of(dense, image), cost, align)
    compact, _ = fold_norms(pcs.compact(small, plan, image, gates="fold"), image)
    networks: dict[str, nn.Module] = {
        "dense": fold_norms(dense, image)[0],
        "masked": masked,
        "indexed": quick,
        "indexed, chosen before": before,
        "compact": compact.eval(),
    }
    return (
        networks,
        {"dense": 1.0, "masked": cost, "indexed": cost, "indexed, chosen before": cost, "compact": left},
        image,
    )


def run(name: str, share: float, seconds: float, align: int) -> None:
    networks, shares, image = contestants(name, share, align)
    with use_threads(1), torch.inference_mode():
        calls = {label: (lambda net=net: net(image)) for label, net in networks.items()}
        times = interleave(calls, seconds, least_rounds=15, clock=time.process_time)
    print(f"\n{name}, batch 1: {len(times['dense'])} rounds")
    print(f"{'':24}  madds  median ms  x dense [99 % interval]")
    for label, taken in times.items():
        ratio = paired_ratio(taken, times["dense"])
        print(f"{label:24}  {shares[label]:5.3f}  {1e3 * median_interval(taken)[0]:9.2f}  {show(ratio)}")
    print(f"indexed / compact {show(paired_ratio(times['indexed'], times['compact']))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--share", type=float, default=0.5, help="of the multiply-adds")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long to measure each network")
    parser.add_argument("--align", type=int, default=1, help="the compact network's widths are multiples of this")
    words = parser.parse_args()
    print(f"eager, one thread; load average {os.getloadavg()[0]:.1f}", flush=True)
    for name in words.nets.split(","):
        run(name, words.share, words.seconds, words.align)


if __name__ == "__main__":
    main()
