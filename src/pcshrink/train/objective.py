"""What is minimised besides the penalty: cross entropy, label smoothing, mixup, a teacher."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.data.source import derive_seed
from pcshrink.train.recipe.schema import DistillSection, TrainSection


def mix(images: Tensor, alpha: float, seed: int, epoch: int, batch: int, rank: int) -> tuple[Tensor, Tensor, float]:
    """Mixup: blend every image with another one of the batch.

    Returns:
        The mixed images, for each the index of its partner, and the share of its own.
    """
    seed_here = derive_seed(seed, epoch, batch, rank, "mixup")  # of the place alone, so that a resumed run repeats it
    partner = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed_here))
    own = float(np.random.default_rng(seed_here).beta(alpha, alpha))
    own = max(own, 1 - own)
    partner = partner.to(images.device)
    return images * own + images[partner] * (1 - own), partner, own


class Objective:
    """The task loss of one batch.

    Args:
        settings: Label smoothing and mixup.
        distill: What part a teacher has; None for none.
        seed: For mixup.
        precision: The context the teacher runs in.
    """

    def __init__(
        self,
        settings: TrainSection,
        distill: DistillSection | None,
        seed: int,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.settings, self.distill, self.seed, self.precision = settings, distill, seed, precision
        self.teacher: nn.Module | None = None

    def prepare(self, images: Tensor, epoch: int, batch: int, rank: int) -> tuple[Tensor, Tensor | None, float]:
        """Mix the images if mixup is on."""
        if not self.settings.mixup:
            return images, None, 1.0
        return mix(images, self.settings.mixup, self.seed, epoch, batch, rank)

    def loss(self, scores: Tensor, images: Tensor, labels: Tensor, partner: Tensor | None, own: float) -> Tensor:
        """The loss of scores (B, classes)."""
        smoothing = self.settings.label_smoothing
        loss = F.cross_entropy(scores, labels, label_smoothing=smoothing)
        if partner is not None:
            loss = own * loss + (1 - own) * F.cross_entropy(scores, labels[partner], label_smoothing=smoothing)
        if self.distill is None or self.teacher is None:
            return loss
        with torch.no_grad(), self.precision():
            taught = _wide(self.teacher(images))
        share = self.distill.weight
        return (1 - share) * loss + share * _imitation(self.distill, _wide(scores), taught)


def _imitation(distill: DistillSection, scores: Tensor, taught: Tensor) -> Tensor:
    if distill.loss == "mse":
        return F.mse_loss(scores, taught)
    heat = distill.temperature
    gap = F.kl_div(
        F.log_softmax(scores / heat, dim=-1),
        F.log_softmax(taught / heat, dim=-1),
        reduction="batchmean",
        log_target=True,
    )
    return gap * heat**2


def _wide(scores: Tensor) -> Tensor:
    """At least float32."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
