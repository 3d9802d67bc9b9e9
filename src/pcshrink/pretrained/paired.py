"""Two networks on the same images: how much worse is one, and how sure can one be."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.data import EvalSource

Z = 1.96  # of a 95 % interval


@dataclass(frozen=True)
class Paired:
    """How a network does beside another one on the same images, in per cent.

    Attributes:
        images: How many.
        first_error: Of the first network.
        second_error: Of the second one.
        low: Lower end of the 95 % interval of the difference.
        high: Upper end.
        agreement: Share of the images to which both say the same.
    """

    images: int
    first_error: float
    second_error: float
    low: float
    high: float
    agreement: float

    @property
    def difference(self) -> float:
        """Points by which the second is worse."""
        return self.second_error - self.first_error

    @classmethod
    def of_counts(cls, images: int, wrong: tuple[int, int], changed: tuple[int, int], same: int) -> Paired:
        """From counts.

        Args:
            images: How many.
            wrong: By each network.
            changed: Images that only the second gets wrong, and those that only the first does.
            same: Images with the same answer.
        """
        # One image more of each kind (Bonett and Price), so that few changes do not make an interval of no width.
        worse, better, count = changed[0] + 1, changed[1] + 1, images + 2
        middle = (worse - better) / count
        spread = Z * math.sqrt(worse + better - (worse - better) ** 2 / count) / count
        low, high = max(middle - spread, -1.0), min(middle + spread, 1.0)
        share = 100 / max(images, 1)
        return cls(images, share * wrong[0], share * wrong[1], 100 * low, 100 * high, share * same)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the difference included."""
        return asdict(self) | {"difference": self.difference}

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.second_error:.2f} % beside {self.first_error:.2f} % on {self.images} images: "
            f"{self.difference:+.2f} points (95 % interval {self.low:+.2f} to {self.high:+.2f}), "
            f"same answer to {self.agreement:.2f} %"
        )


@torch.no_grad()
def compare_errors(first: nn.Module, second: nn.Module, source: EvalSource) -> Paired:
    """Show both networks all images."""
    first.eval()
    second.eval()
    images = same = 0
    wrong, changed = [0, 0], [0, 0]
    for batch, labels in source.batches():
        answers = [_answers(model, batch) for model in (first, second)]
        bad = [answer != labels.to(answer.device) for answer in answers]
        images += len(labels)
        same += int((answers[0] == answers[1]).sum())
        for place in (0, 1):
            wrong[place] += int(bad[place].sum())
        changed[0] += int((bad[1] & ~bad[0]).sum())
        changed[1] += int((bad[0] & ~bad[1]).sum())
    return Paired.of_counts(images, (wrong[0], wrong[1]), (changed[0], changed[1]), same)


def _answers(model: nn.Module, batch: Tensor) -> Tensor:
    weight = next(p for p in model.parameters() if p.is_floating_point())
    answer: Tensor = model(batch.to(weight.device, weight.dtype)).argmax(dim=-1)
    return answer
