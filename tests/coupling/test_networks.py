"""The paper's networks: what of them can shrink, and how zero-padded shortcuts are treated."""

from __future__ import annotations

import pytest
import torch

import pcshrink as pcs
from benchmarks.networks import shrinkable_share
from pcshrink.models import build, create
from testing.checks import LIMIT, outputs, random_keep, relative, stir_gates_
from testing.nets import randomise_

pytestmark = pytest.mark.equivalence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_zero_padded_shortcuts(dtype: torch.dtype) -> None:
    """Option A pads by a number of channels, so the residual stream stays, with the reason; inner channels shrink."""
    torch.manual_seed(0)
    model = randomise_(build("resnet20", shortcut="A")).to(dtype).eval()
    example, other = torch.randn(2, 2, 3, 32, 32).to(dtype)
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    inner = {f"layer{stage}.{block}.conv1" for stage in (1, 2, 3) for block in (0, 1, 2)}
    assert {w for g in shrinker.groups for w in g.writers} == inner
    assert "pads the channel axis by a fixed number" in shrinker.refused["layer1.0.conv2"]
    assert "fixed width" in shrinker.refused["layer3.2.conv2"]
    plan = shrinker.plan(random_keep(shrinker, seed=1))
    small = pcs.compact(model, plan, example)
    shrinker.mask_(plan)
    assert relative(outputs(model, other), outputs(small, other)) <= LIMIT[dtype]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ("timm:vit_tiny_patch16_224", 0.8),
        ("torchvision:vit_b_16", 0.8),
        ("timm:swin_tiny_patch4_window7_224", 0.6),
        ("pcshrink:t2t_vit_14", 0.6),
    ],
)
def test_most_madds_can_shrink(spec: str, least: float) -> None:
    model, example = create(spec).eval(), torch.randn(1, 3, 224, 224)
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(prove=False))
    assert shrinkable_share(shrinker, example) >= least
