"""Groups agree with those of Torch-Pruning on networks that both handle."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

from pcshrink.methods.pcs.config import ShrinkConfig
from pcshrink.proof.discover import discover
from testing.nets import randomise_

LAYERS = (nn.Linear, nn.modules.conv._ConvNd)

NETWORKS = [
    "resnet18",
    "resnet50",
    "vgg16_bn",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "densenet121",
    "efficientnet_b0",
]


def theirs(model: nn.Module, example: torch.Tensor) -> set[frozenset[str]]:
    """For every group of Torch-Pruning the layers that lose output channels together."""
    tp = pytest.importorskip("torch_pruning")
    model = copy.deepcopy(model)  # building the graph leaves the model in another state
    names = {module: name for name, module in model.named_modules()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = tp.DependencyGraph().build_dependency(model, example_inputs=example)
        groups = list(graph.get_all_groups(root_module_types=[nn.Conv2d, nn.Linear]))
    found = set()
    for group in groups:
        writers = [d.target.module for d, _ in group if graph.is_out_channel_pruning_fn(d.handler)]
        found.add(frozenset(names[m] for m in writers if isinstance(m, LAYERS)))
    return found


@pytest.mark.equivalence
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_same_groups(name: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    options = {"num_classes": 10}
    model = randomise_(torchvision.models.get_model(name, weights=None, **options)).eval()
    example = torch.randn(1, 3, 32, 32)
    ours = {frozenset(g.writers) for g in discover(model, example, ShrinkConfig(prove=False)).groups}
    classifier = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)][-1]
    assert ours == theirs(model, example) - {frozenset({classifier})}
