"""Shrink a detector: Faster R-CNN on made-up boxes, with the penalty in the loop. Training mode needs targets."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

import pcshrink as pcs


def made_up(count: int, size: int = 96) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Grey images, each with one bright square and its box."""
    images, targets = [], []
    for _ in range(count):
        left, top = torch.randint(0, size - 40, (2,)).tolist()
        image = torch.rand(3, size, size) * 0.2
        image[:, top : top + 36, left : left + 36] += 0.7
        images.append(image)
        targets.append({"boxes": torch.tensor([[left, top, left + 36.0, top + 36.0]]), "labels": torch.tensor([1])})
    return images, targets


def train(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: int, shrinker: pcs.Shrinker | None
) -> float:
    images, targets = made_up(batch)
    loss = sum(network(images, targets).values())
    (loss if shrinker is None else loss + shrinker.penalty()).backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if shrinker is not None:
        shrinker.step()
    return float(loss.detach())


def main(steps: int = 20, batch: int = 4) -> tuple[torch.nn.Module, list[float]]:
    torch.manual_seed(0)
    model = fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=2, min_size=96, max_size=96
    )
    example = (made_up(2)[0],)  # a tuple of arguments: the model takes a list of images
    # A few steps cannot empty channels, so a mild fixed rate here; for real training leave lam out.
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(ratio=0.5, total_steps=steps, lam=1e-4))
    optimizer = torch.optim.SGD(shrinker.param_groups(weight_decay=1e-4), lr=0.01, momentum=0.9)
    losses = [train(model.train(), optimizer, batch, shrinker) for _ in range(steps)]
    # In real training: shrinker.plan(), once everything selected is 0. Here half of every group, to show the cut.
    plan = shrinker.plan({name: ~low for name, low in shrinker.selected().items()})
    small = pcs.compact(model.eval(), plan, example)
    sizes = [sum(p.numel() for p in net.parameters()) / 1e6 for net in (model, small)]
    optimizer = pcs.transfer(optimizer, model, small, plan)
    for left in range(steps, 0, -1):  # the settling phase, at a falling learning rate: never leave it out
        for options in optimizer.param_groups:
            options["lr"] = 0.01 * left / steps
        losses.append(train(small.train(), optimizer, batch, None))
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; parameters {sizes[0]:.1f} M -> {sizes[1]:.1f} M, proven equal")
    return small.eval(), losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    main(parser.parse_args().steps)
