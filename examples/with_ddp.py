"""Plain DistributedDataParallel: attach before wrapping; ``step()`` averages the salience over the ranks.

torchrun --nproc-per-node 2 examples/with_ddp.py
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import pcshrink as pcs
from pcshrink.data.digits import load_digits
from pcshrink.models import build


def main(steps: int = 160) -> list[int]:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same weights everywhere
    images, labels, *_ = load_digits()
    images = images.float() / 128 - 1
    model = build("digitsnet")
    shrinker = pcs.attach_(model, images[:2], pcs.ShrinkConfig(total_steps=steps, lr=0.05))
    pcs.set_budget(shrinker, images[:2], madds=0.5)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(shrinker.param_groups(weight_decay=5e-4), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)  # other images on every rank
    batches = [torch.randint(0, len(images), (64 // ranks,), generator=generator) for _ in range(2 * steps)]
    parallel.train()
    for batch in batches[:steps]:
        (F.cross_entropy(parallel(images[batch]), labels[batch]) + shrinker.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()
    keep = {name: ~low for name, low in shrinker.selected().items()}
    plan = shrinker.plan(keep)
    small = pcs.compact(parallel, plan, images[:2]).train()  # wrapped or not
    optimizer = pcs.transfer(optimizer, model, small, plan)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    settling = DistributedDataParallel(small)
    for batch in batches[steps:]:  # the settling phase: never leave it out
        F.cross_entropy(settling(images[batch]), labels[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    kept = torch.cat([k.nonzero().flatten() for k in keep.values()]).tolist()
    everyone: list[list[int]] = [[] for _ in range(ranks)]
    dist.all_gather_object(everyone, kept)
    assert all(other == kept for other in everyone), "ranks disagree"
    if rank == 0:
        print(f"{ranks} ranks agree; {sum(p.numel() for p in small.parameters()):,} parameters left")
    dist.destroy_process_group()
    return kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=160)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(parser.parse_args().steps)
