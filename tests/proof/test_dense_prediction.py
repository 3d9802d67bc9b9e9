"""Segmentation and detection: attach, shrink and compact exactly, choices such as non-maximum suppression included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.errors import VerificationError
from pcshrink.surgery.gates import find_gates
from testing.checks import random_keep, stir_gates_
from testing.nets import randomise_

torchvision = pytest.importorskip("torchvision")
detection = pytest.importorskip("torchvision.models.detection")
pytestmark = pytest.mark.equivalence

SMALL = {"weights": None, "weights_backbone": None, "min_size": 64, "max_size": 96, "num_classes": 5}


def images(dtype: torch.dtype = torch.float32, seed: int = 0, count: int = 2) -> tuple[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return ([torch.rand(3, *size, generator=generator).to(dtype) for size in ((64, 96), (80, 64))[:count]],)


def maps(dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.rand(2, 3, 48, 48, generator=torch.Generator().manual_seed(seed)).to(dtype)


def frozen_backbone() -> nn.Module:
    norm = torchvision.ops.FrozenBatchNorm2d
    return detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, norm_layer=norm, trainable_layers=5
    )


def retinanet() -> nn.Module:
    return detection.RetinaNet(frozen_backbone(), 5, min_size=64, max_size=96, score_thresh=0.0)


def fcos() -> nn.Module:
    return detection.FCOS(frozen_backbone(), 5, min_size=64, max_size=96, score_thresh=0.0)


def ssdlite() -> nn.Module:
    return detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5, score_thresh=0.0)


def ssd() -> nn.Module:
    return detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=5, score_thresh=0.0)


def faster_rcnn() -> nn.Module:
    return detection.fasterrcnn_mobilenet_v3_large_320_fpn(**SMALL, box_score_thresh=0.0)


def segmenter(name: str) -> Callable[[], nn.Module]:
    return lambda: torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5)


DETECTORS = {
    "retinanet": retinanet,
    "fcos": fcos,
    "ssdlite": ssdlite,
    "faster_rcnn": faster_rcnn,
    "ssd": pytest.param(ssd, marks=pytest.mark.slow),
}
SEGMENTERS = [
    "lraspp_mobilenet_v3_large",
    "deeplabv3_mobilenet_v3_large",
    pytest.param("fcn_resnet50", marks=pytest.mark.slow),
]


def prepare(build: Callable[[], nn.Module], dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return randomise_(build()).to(dtype).eval()


def shrink(model: nn.Module, example: Any, other: Any) -> tuple[pcs.Shrinker, nn.Module, float]:
    """Attach, cut at random, compare on another input."""
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    plan = shrinker.plan(random_keep(shrinker, seed=3))
    small = pcs.compact(model, plan, example)
    shrinker.mask_(plan)
    return shrinker, small, pcs.verify(model, small, other)


@pytest.mark.parametrize("build", DETECTORS.values(), ids=DETECTORS.keys())
def test_detector(build: Callable[[], nn.Module]) -> None:
    model, count = prepare(build, torch.float32), 1 if build is ssd else 2  # SSD enlarges each to 300 x 300
    example, other = images(count=count), images(seed=1, count=count)
    with torch.no_grad():
        assert sum(len(detected["boxes"]) for detected in model(*other)) > 0, "no boxes prove nothing"
    shrinker, small, worst = shrink(model, example, other)
    assert worst <= 1e-5
    assert sum(p.numel() for p in small.parameters()) < 0.8 * sum(p.numel() for p in model.parameters())
    writers = {w for g in shrinker.groups for w in g.writers}
    assert any(w.startswith("backbone") for w in writers)
    assert {"index", "slice", "softmax", "mul", "split"} & {
        word for reason in shrinker.refused.values() for word in reason.replace("_", " ").split()
    }, "the predicting layers stay"


@pytest.mark.parametrize("name", SEGMENTERS)
def test_segmenter(name: str) -> None:
    """Cut in float64, where nothing hides in the rounding; the outcome is compared in float32 as well."""
    model = prepare(segmenter(name), torch.float64)
    _, small, worst = shrink(model, maps(torch.float64), maps(torch.float64, seed=1))
    assert worst <= 1e-12
    assert pcs.verify(model.float(), small.float(), maps(seed=1)) <= 1e-5
    assert small(maps())["out"].shape == (2, 5, 48, 48)


def test_frozen_norms_are_gated_and_folded() -> None:
    """A frozen norm does not map 0 to 0, so the gate sits behind it; folding scales its buffers."""
    model = prepare(retinanet, torch.float32)
    shrinker = pcs.attach_(model, images())
    stir_gates_(model)
    assert "backbone.body.bn1" in find_gates(model)
    plan = shrinker.plan(random_keep(shrinker, seed=4))
    small = pcs.compact(model, plan, images(), gates="fold")
    assert not [key for key in small.state_dict() if "pcs_" in key]
    assert small.get_submodule("backbone.body.bn1").weight.numel() == len(plan.groups["backbone.body.conv1"])


class Chooser(nn.Module):
    """Keeps the best scores in order, so equal scores may change places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.conv2(self.conv1(x).relu()).flatten(1).round(decimals=1)
        best, order = scores.sort(descending=True)
        return best[best > 0.2], order[:, :8]


def test_equal_scores_may_change_places() -> None:
    """Ties are broken by rounding; with the reference's choices imposed the two models agree."""
    torch.manual_seed(0)
    model, x = Chooser().eval(), torch.randn(2, 3, 16, 16)
    shrinker = pcs.attach_(model, x)
    small = pcs.compact(model, shrinker.plan(random_keep(shrinker, seed=0)), x)
    assert small.conv1.out_channels < 16


def test_other_values_before_a_choice_are_found() -> None:
    """Imposing choices hides nothing: a model with other weights is still told apart, even without any output."""
    torch.manual_seed(0)
    model, x = Chooser().eval(), torch.randn(2, 3, 16, 16)
    other = Chooser().eval()
    with pytest.raises(VerificationError, match="do not agree"):
        pcs.verify(model, other, x)

    class Nothing(Chooser):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            best, _ = super().forward(x)
            return best[best > 1e6], best[best > 1e6]

    quiet, loud = Nothing().eval(), Nothing().eval()
    quiet.load_state_dict(model.state_dict())
    assert pcs.verify(quiet, quiet, x) == 0
    with pytest.raises(VerificationError, match="before a choice"):
        pcs.verify(quiet, loud, x)
