"""How closely budgets are met: eight of them on four networks, pushed on made-up data.

    python -m benchmarks.budgets [--only PATTERN] [--steps 120]

Each network is trained on noise with random labels while it shrinks, so that the task says nothing about which channels
matter; what is looked at is the control. A row gives what was reached as a share of what was asked, and the highest
running salience of a channel that was cut; a budget below what the least widths cost is refused. 1 is returned if any
budget is missed by more than 1 %.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time

import torch
import torch.nn.functional as F

import pcshrink as pcs
from pcshrink.errors import ConfigError
from pcshrink.models import create

BUDGETS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NETWORKS: dict[str, tuple[str, dict[str, int], tuple[int, int, int]]] = {
    "digits net": ("digitsnet", {}, (1, 16, 16)),
    "ResNet-20": ("resnet20", {}, (3, 32, 32)),
    "MobileNetV2": ("torchvision:mobilenet_v2", {"num_classes": 10}, (3, 32, 32)),
    "ViT-tiny": (
        "timm:vit_tiny_patch16_224",
        {"img_size": 32, "patch_size": 8, "depth": 4, "num_classes": 10},
        (3, 32, 32),
    ),
}
CLOSE = 0.01
BATCH = 8


def shrink(network: str, budget: float, steps: int) -> tuple[float, float] | None:
    """Push a network to a budget; what was reached over what was asked, and the highest salience cut.

    None where no widths can meet the budget, which is refused before the first step.
    """
    torch.manual_seed(0)
    name, arguments, shape = NETWORKS[network]
    model, example = create(name, **arguments), torch.randn(2, *shape)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(total_steps=steps, lr=0.05, prove=False))
    try:
        target = pcs.set_budget(shrinker, example, madds=budget, gates="fold")
    except ConfigError:
        return None
    optimizer = torch.optim.SGD(shrinker.param_groups(weight_decay=1e-4), lr=0.05, momentum=0.9)
    model.train()
    for _ in range(steps):
        loss = F.cross_entropy(model(torch.randn(BATCH, *shape)), torch.randint(0, 10, (BATCH,))) + shrinker.penalty()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # noise cannot be learned, only be diverged on
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()
    keep = shrinker.method.keep()
    small = pcs.compact(model, shrinker.plan(keep), example, gates="fold")
    return pcs.profile(small, example).madds / target.limit, shrinker.method.highest_cut(keep) or 0.0


def main() -> int:
    """Print a table of all; 1 if a budget was missed."""
    parser = argparse.ArgumentParser(description="How closely budgets are met.")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="a glob over the networks' names")
    parser.add_argument("--steps", type=int, default=120, help="steps of a shrinking phase (120)")
    options = parser.parse_args()
    missed = 0
    print(f"reached / asked, madds (goal: within {CLOSE:.0%}); highest salience cut (goal: 0)")
    print("| network | " + " | ".join(f"{b:g}" for b in BUDGETS) + " | highest cut | seconds |")
    print("|---" * (len(BUDGETS) + 3) + "|")
    for network in NETWORKS:
        if not fnmatch.fnmatch(network.lower(), options.only.lower()):
            continue
        start = time.perf_counter()
        rows = [shrink(network, budget, options.steps) for budget in BUDGETS]
        missed += sum(row is not None and abs(row[0] - 1) > CLOSE for row in rows)
        cells = " | ".join("refused" if row is None else f"{row[0]:.4f}" for row in rows)
        highest, taken = max(row[1] for row in rows if row is not None), time.perf_counter() - start
        print(f"| {network} | {cells} | {highest:.2g} | {taken:.0f} |", flush=True)
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
