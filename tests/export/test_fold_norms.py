"""Norms fold into the layer before them, and the network computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pcshrink.export.fold_norms import fold_norms
from testing.checks import outputs, relative
from testing.nets import CASES, Case

pytestmark = pytest.mark.export


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_folding_norms_changes_nothing(case: Case) -> None:
    model, example = case.model(), case.inputs()
    folded, error = fold_norms(model, example)
    assert error < 1e-5
    assert relative(outputs(model, example), outputs(folded, example)) < 1e-5


def test_folding_norms_takes_them_away_but_not_those_in_use() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
            self.na, self.nb, self.nc = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.na(self.a(x))
            x = self.b(x)
            return self.nc(self.c(self.nb(x) + x))  # b is read twice

    model = Both().eval()
    folded, _ = fold_norms(model, torch.randn(2, 3, 4, 4))
    left = [name for name, module in folded.named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert left == ["nb"]
    assert isinstance(model.na, nn.BatchNorm2d)
