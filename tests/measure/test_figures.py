"""The figures the counters must reproduce."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pcshrink.measure import profile
from pcshrink.models import build, create

pytestmark = pytest.mark.unit


def image(*shape: int) -> Tensor:
    return torch.rand(*(shape or (1, 3, 224, 224)), generator=torch.Generator().manual_seed(0))


def millions(number: int, digits: int) -> float:
    return round(number / 1e6, digits)


@pytest.mark.parametrize(
    ("name", "params", "madds", "mem_access"),
    [
        ("torchvision:resnet18", 11.69, 1814.1, 14.16),
        ("torchvision:resnet34", 21.80, 3663.8, 25.52),
        ("torchvision:vgg16", 138.36, 15470.3, 151.89),
        ("torchvision:mobilenet_v2", 3.50, 300.8, 10.15),
    ],
)
def test_dense_figures(name: str, params: float, madds: float, mem_access: float) -> None:
    with torch.device("meta"):  # shapes are all that counts
        cost = profile(create(name), torch.empty(1, 3, 224, 224))
    assert (millions(cost.params, 2), millions(cost.madds, 1)) == (params, madds)
    assert millions(cost.mem_access, 2) == mem_access


@pytest.mark.parametrize(
    ("name", "params", "madds", "mem_access"),
    [("resnet20", 0.27, 40.55, 0.46), ("resnet32", 0.46, 68.86, 0.76)],
)
def test_cifar_figures_with_option_a(name: str, params: float, madds: float, mem_access: float) -> None:
    cost = profile(build(name, shortcut="A"), image(1, 3, 32, 32))
    assert (millions(cost.params, 2), millions(cost.madds, 2)) == (params, madds)
    assert millions(cost.mem_access, 2) == mem_access


@pytest.mark.parametrize(("name", "madds"), [("resnet20", 41.41), ("resnet32", 70.06)])
def test_cifar_figures_as_the_paper_counts(name: str, madds: float) -> None:
    assert millions(profile(build(name), image(1, 3, 32, 32), "paper").madds, 2) == madds


def test_paper_memory_access_of_resnet18_adds_image_and_max_pool() -> None:
    model = create("torchvision:resnet18")
    plain, paper = profile(model, image()), profile(model, image(), "paper")
    assert paper.mem_access - plain.mem_access == 3 * 224**2 + 64 * 56**2
    assert millions(paper.mem_access, 2) == 14.51


def test_paper_terms_of_resnet20_one_by_one() -> None:
    n = 16 * 32 * 32  # numbers in a first-stage map; n / 2 and n / 4 in the later ones
    stages = (n, n // 2, n // 4)
    convs = 40_551_040 + 2 * 16 * 32 * 16 * 16
    norms = 2 * 7 * sum(stages)  # stem or projection, and six convs, in each stage
    relus = 7 * n + 6 * (n // 2 + n // 4)
    pool, bias = 64 * 8 * 8, 10
    cost = profile(build("resnet20"), image(1, 3, 32, 32), "paper")
    assert cost.madds == convs + norms + relus + pool + bias == 41_407_114
    kinds = {kind: sum(r.madds for r in cost.layers if r.kind == kind) for kind in ("norm", "activation", "pool")}
    assert kinds == {"norm": norms, "activation": relus, "pool": pool}


@pytest.mark.parametrize(
    ("name", "giga"),
    [
        ("timm:swin_tiny_patch4_window7_224", 4.5),
        ("timm:deit_small_patch16_224", 4.6),
        ("torchvision:vit_b_16", 17.6),
    ],
)
def test_transformers_as_published(name: str, giga: float) -> None:
    assert round(profile(create(name), image()).madds / 1e9, 1) == giga
