"""Any network from a short text; nothing heavy is imported before it is needed."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from pcshrink.errors import ConfigError
from pcshrink.models import create, default_input, registry

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("spec", "module"),
    [
        ("pcshrink:resnet20", "pcshrink.models.resnet_cifar"),
        ("resnet20", "pcshrink.models.resnet_cifar"),
        ("torchvision:squeezenet1_1", "torchvision.models.squeezenet"),
        ("squeezenet1_1", "torchvision.models.squeezenet"),
        ("torchvision:segmentation.lraspp_mobilenet_v3_large", "torchvision.models.segmentation.lraspp"),
        ("timm:test_resnet", "timm.models.resnet"),
        ("test_resnet.r160_in1k", "timm.models.resnet"),
        ("torch.nn:Identity", "torch.nn.modules.linear"),
    ],
)
def test_create_finds_the_source(spec: str, module: str) -> None:
    assert type(create(spec)).__module__ == module


def test_arguments_are_passed_on() -> None:
    assert create("timm:test_resnet", num_classes=3).get_classifier().out_features == 3
    assert create("torchvision:squeezenet1_1", num_classes=3).num_classes == 3
    assert create("resnet20", num_classes=3).fc.out_features == 3
    assert create("torch.nn:Linear", in_features=2, out_features=3).weight.shape == (3, 2)


def test_pretrained_is_asked_for_only_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def builder(weights: object = None, weights_backbone: object = "IMAGENET1K_V1") -> nn.Module:
        asked.update(weights=weights, backbone=weights_backbone)
        return nn.Identity()

    monkeypatch.setattr(registry._torchvision(), "get_model_builder", lambda name: builder)
    create("torchvision:fcn_resnet50")
    assert asked == {"weights": None, "backbone": None}
    create("torchvision:fcn_resnet50", pretrained=True)
    assert asked == {"weights": "DEFAULT", "backbone": None}


def test_code_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import torch\nclass Nets:\n    small = torch.nn.Flatten\n    size = 3\n    def text(self): ...\n"
    (tmp_path / "users_own_nets.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    assert isinstance(create("users_own_nets:Nets.small"), nn.Flatten)
    with pytest.raises(ConfigError, match="must be a class or function that gives a model, got int"):
        create("users_own_nets:Nets.size")
    with pytest.raises(ConfigError, match=r"must give a torch.nn.Module, got Nets"):
        create("users_own_nets:Nets")
    assert sys.path == path


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet21", "no model is called 'resnet21'; did you mean .*resnet20"),
        ("qqqqqqqq", "the names of this package are digitsnet, .* A model is given as pcshrink:NAME"),
        ("pcshrink:resnet33", "no model is called 'pcshrink:resnet33'; did you mean .*pcshrink:resnet32"),
        ("torchvision:resnet19", "did you mean .*torchvision:resnet18"),
        ("timm:vit_bas_patch16_224", "did you mean .*timm:vit_base_patch16_224"),
        ("no.such.module:net", "cannot find 'no.such.module:net': No module named 'no'"),
        ("torch.nn:Konv2d", "cannot find 'torch.nn:Konv2d': .*has no attribute 'Konv2d'"),
        (":net", "cannot find ':net'"),
        ("torch.nn:Linear", "cannot make the model 'torch.nn:Linear' with {}: .*in_features"),
    ],
)
def test_unknown_names_are_explained(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create(spec)


def test_no_published_weights_of_our_own() -> None:
    with pytest.raises(ConfigError, match="no published weights for 'resnet20'"):
        create("resnet20", pretrained=True)


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="'timm:resnet18' needs timm, which is not installed: pip install timm"):
        create("timm:resnet18")
    with pytest.raises(ConfigError, match=r"\(timm not installed\)"):
        create("vit_tiny_patch16_224")


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("resnet20", (3, 32, 32)),
        ("digitsnet", (1, 16, 16)),
        ("t2t_vit_14", (3, 224, 224)),
        ("resnet18", (3, 224, 224)),
        ("torchvision:inception_v3", (3, 299, 299)),
        ("torchvision:r3d_18", (3, 16, 112, 112)),
        ("torchvision:s3d", (3, 16, 224, 224)),
        ("timm:vit_base_patch16_384", (3, 384, 384)),
    ],
)
def test_default_input_of_a_name(spec: str, shape: tuple[int, ...]) -> None:
    assert default_input(spec) == shape


def test_default_input_of_a_model() -> None:
    assert default_input(create("timm:test_resnet")) == (3, 160, 160)
    assert default_input(create("resnet20", in_channels=1)) == (1, 32, 32)
    assert default_input(create("torchvision:squeezenet1_1")) == (3, 224, 224)
    assert default_input(create("torchvision:r3d_18")) == (3, 16, 112, 112)
    assert default_input(nn.Sequential(nn.Conv2d(5, 2, 1))) == (5, 224, 224)
    assert default_input(nn.Sequential(nn.Flatten(), nn.Linear(7, 2))) == (7,)
    assert default_input(nn.Identity()) == (3, 224, 224)
    model = create("resnet56")
    assert model(torch.rand(1, *default_input(model))).shape == (1, 10)


def test_import_stays_light() -> None:
    code = (
        "import sys; import pcshrink.models, pcshrink.measure; pcshrink.models.create('resnet20')\n"
        "sys.exit(' '.join({'torchvision', 'timm'} & sys.modules.keys()) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_hub_that_tries_again_and_again_is_not_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def out_of_reach(**_: object) -> None:
        logging.getLogger("huggingface_hub.utils").warning("Retrying in 8s")
        raise OSError("no route to host")

    monkeypatch.setitem(registry._BUILDERS, "timm", lambda name, pretrained: (out_of_reach, {}))
    with pytest.raises(ConfigError, match=r"'timm:resnet18' could not be loaded \(OSError: no route"):
        create("timm:resnet18", pretrained=True)
    assert not caplog.records
