"""Cut a trained network with the pruners of Torch-Pruning to the same budget, and save it to be trained on.

    python -m benchmarks.peers --weights runs/dense/model/model.safetensors --out zoo/start

Torch-Pruning chooses the channels; they are then cut out by pcshrink, so the result is an ordinary saved model and both
sides are counted, trained (``model.start`` of a recipe) and timed by the same code.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from pathlib import Path

import torch
import torch_pruning as tp
from torch import Tensor, nn

import pcshrink
from pcshrink.artifact import load_weights
from pcshrink.methods.controls import RandomConfig
from pcshrink.models import create

PRUNERS = {
    "group-norm": (tp.pruner.GroupNormPruner, tp.importance.GroupMagnitudeImportance),
    "bn-scale": (tp.pruner.BNScalePruner, tp.importance.BNScaleImportance),
}
STEPS = 40  # halvings of the interval of the ratio


def removed(
    model: nn.Module, example: Tensor, kind: str, ratio: float, *, everywhere: bool
) -> tuple[dict[str, set[int]], nn.Module]:
    """The output channels of each layer that the pruner removes in one step, and what it leaves."""
    model = copy.deepcopy(model)
    names = {module: name for name, module in model.named_modules()}
    pruner_class, importance = PRUNERS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruner = pruner_class(
            model, example, importance=importance(), pruning_ratio=ratio, global_pruning=everywhere,
            ignored_layers=[m for m in model.modules() if isinstance(m, nn.Linear)],
        )  # fmt: skip
        gone: dict[str, set[int]] = {}
        for group in pruner.step(interactive=True):
            for dependency, indices in group:
                layer = dependency.target.module
                if isinstance(layer, nn.Conv2d) and pruner.DG.is_out_channel_pruning_fn(dependency.handler):
                    gone.setdefault(names[layer], set()).update(indices)
            group.prune()
    return gone, model


def cut(model: nn.Module, example: Tensor, gone: dict[str, set[int]]) -> tuple[nn.Module, pcshrink.PrunePlan]:
    """The same channels cut out by pcshrink."""
    model = copy.deepcopy(model)
    shrinker = pcshrink.attach_(model, example, RandomConfig(min_channels=1))  # its gates are plain masks
    keep = {}
    for group in shrinker.groups:
        stays = torch.ones(group.channels, dtype=torch.bool)
        stays[sorted(gone.get(group.name, ()))] = False
        keep[group.name] = stays
    plan = shrinker.plan(keep)
    return pcshrink.compact(model, plan, example, gates="fold"), plan


def within(
    model: nn.Module, example: Tensor, kind: str, limit: float, *, everywhere: bool
) -> tuple[nn.Module, pcshrink.PrunePlan, float]:
    """The largest network this pruner leaves within the budget (madds in the paper's convention)."""
    low, high, best = 0.0, 0.95, None
    seen: dict[str, float] = {}
    for _ in range(STEPS):
        ratio = (low + high) / 2
        gone, theirs = removed(model, example, kind, ratio, everywhere=everywhere)
        key = str(sorted((n, sorted(i)) for n, i in gone.items()))
        if key not in seen:
            small, plan = cut(model, example, gone)
            with torch.no_grad():
                torch.testing.assert_close(small.eval()(example), theirs.eval()(example), rtol=1e-4, atol=1e-4)
            seen[key] = pcshrink.profile(small, example, "paper").madds
            if seen[key] <= limit:
                best = (small, plan, ratio)
        low, high = (low, ratio) if seen[key] <= limit else (ratio, high)
        if high - low < 1e-3:
            break
    assert best is not None
    return best


def main() -> None:
    """Make the networks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--weights", type=Path, required=True, help="the dense network")
    parser.add_argument("--madds", type=float, default=17.6e6, help="budget in the paper's convention")
    parser.add_argument("--out", type=Path, required=True, help="one folder for each pruner goes here")
    parser.add_argument("--global", dest="everywhere", action="store_true", help="rank channels over all layers")
    options = parser.parse_args()
    model = create(options.model, num_classes=10)
    model.load_state_dict(load_weights(options.weights))
    model.eval()
    example = torch.randn(2, 3, 32, 32)
    for kind in PRUNERS:
        small, plan, ratio = within(model, example, kind, options.madds, everywhere=options.everywhere)
        folder = options.out / kind
        pcshrink.save(folder, small, plan, f"pcshrink:{options.model}", builder_args={"num_classes": 10})
        madds = pcshrink.profile(small, example, "paper").madds
        widths = {name: len(kept) for name, kept in plan.groups.items()}
        print(f"{kind}: ratio {ratio:.3f}, {madds / 1e6:.2f} M madds, widths {widths} -> {folder}")


if __name__ == "__main__":
    main()
