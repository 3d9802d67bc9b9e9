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
from pcshrink.train.notes import Notes
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
        self.notes: Notes | None = None
        self._place = (0, 0)

    def learn_from(self, teacher: nn.Module, notes: Notes | None = None) -> None:
        """Ask this teacher from now on, or the notes of what it has said."""
        self.teacher, self.notes = teacher, notes

    def prepare(self, images: Tensor, epoch: int, batch: int, rank: int) -> tuple[Tensor, Tensor | None, float]:
        """Remember which batch it is; mix the images if mixup is on."""
        self._place = (epoch, batch)
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
        share = self.distill.weight
        return (1 - share) * loss + share * imitation(
            self.distill, _wide(scores), self._ask(self.teacher, images), labels
        )

    def _ask(self, teacher: nn.Module, images: Tensor) -> Tensor:
        """The teacher's scores, from the notes where they are taken."""

        def ask() -> Tensor:
            with torch.no_grad(), self.precision():
                return _wide(teacher(images))

        return ask() if self.notes is None else self.notes.scores(*self._place, ask)


def imitation(distill: DistillSection, scores: Tensor, taught: Tensor, labels: Tensor) -> Tensor:
    """How far scores (B, classes) are from the teacher's."""
    if distill.loss == "mse":
        return F.mse_loss(scores, taught)
    if distill.standardize:
        scores, taught = _standardized(scores), _standardized(taught)
    heat = distill.temperature
    scores, taught = scores / heat, taught / heat
    if distill.loss == "soft":
        return _divergence(F.log_softmax(scores, dim=-1), F.log_softmax(taught, dim=-1)) * heat**2
    label = F.one_hot(labels, scores.shape[-1]).bool()
    hit = _divergence(_log_hit(scores, label), _log_hit(taught, label))
    others = _divergence(*(F.log_softmax(x[~label].view(len(x), -1), dim=-1) for x in (scores, taught)))
    return (distill.label_weight * hit + distill.others_weight * others) * heat**2


def _log_hit(scores: Tensor, label: Tensor) -> Tensor:
    """Log chances of the label's class and of all others together: (B, 2)."""
    inside = scores[label].unsqueeze(1)
    outside = scores[~label].view(len(scores), -1).logsumexp(dim=1, keepdim=True)
    return F.log_softmax(torch.cat([inside, outside], dim=1), dim=1)


def _divergence(chances: Tensor, wanted: Tensor) -> Tensor:
    """Kullback-Leibler divergence of log chances, mean over the batch."""
    return F.kl_div(chances, wanted, reduction="batchmean", log_target=True)


def _standardized(scores: Tensor) -> Tensor:
    deviation, mean = torch.std_mean(scores, dim=-1, keepdim=True)
    return (scores - mean) / (deviation + 1e-7)


def _wide(scores: Tensor) -> Tensor:
    """At least float32."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
