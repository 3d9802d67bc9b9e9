"""The package's own networks: sizes as published, shapes, training, heads that can be taken out."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.errors import ConfigError
from pcshrink.measure import profile
from pcshrink.models import build, names
from pcshrink.models.resnet_cifar import PadShortcut
from pcshrink.models.t2t_vit import Attention, TokenPerformer, TokenTransformer, sinusoid_positions

pytestmark = pytest.mark.unit


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def size(model: nn.Module) -> float:
    return round(sum(p.numel() for p in model.parameters()) / 1e6, 2)


@pytest.mark.parametrize(
    ("name", "published"),
    [("resnet20", 0.27), ("resnet32", 0.46), ("resnet44", 0.66), ("resnet56", 0.85), ("resnet110", 1.73)],
)
def test_cifar_resnets_have_the_published_size(name: str, published: float) -> None:
    model = build(name, shortcut="A")
    assert size(model) == published
    layers = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(layers) == int(name.removeprefix("resnet"))


@pytest.mark.parametrize("shortcut", ["A", "B"])
def test_cifar_resnet_names_options_and_gradients(shortcut: str) -> None:
    model = build("resnet20", shortcut=shortcut, num_classes=7, in_channels=2, widths=(4, 8, 12))
    keys = model.state_dict().keys()
    assert {"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer3.2.bn2.bias", "fc.bias"} <= keys
    assert ("layer2.0.downsample.0.weight" in keys) == (shortcut == "B")
    out = model(rand(2, 2, 16, 16))
    assert out.shape == (2, 7)
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_option_a_pads_zero_channels_around_every_second_pixel() -> None:
    x = rand(2, 4, 6, 6)
    out = PadShortcut(4, 9, 2)(x)
    assert out.shape == (2, 9, 3, 3)
    assert torch.equal(out[:, 2:6], x[:, :, ::2, ::2])
    assert not out[:, :2].any()
    assert not out[:, 6:].any()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"shortcut": "C"}, r"shortcut must be 'A' \(zero padding\) or 'B' \(projection\), got 'C'"),
        ({"widths": (4, 8)}, "one number for each of the 3 stages"),
        ({"widths": (8, 4, 4), "shortcut": "A"}, "can only add channels"),
        ({"depth": 3}, "cannot make the model 'resnet20'"),
    ],
)
def test_cifar_resnet_rejects(kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("resnet20", **kwargs)


def test_digitsnet_learns_and_takes_both_sizes() -> None:
    torch.manual_seed(0)
    model = build("digitsnet")
    assert model(rand(2, 1, 8, 8)).shape == model(rand(2, 1, 16, 16)).shape == (2, 10)
    patterns, labels = rand(10, 1, 16, 16), torch.arange(10).repeat(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(20):
        x = patterns.repeat(6, 1, 1, 1) + 0.3 * torch.randn(60, 1, 16, 16)
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2


@pytest.mark.parametrize(
    ("name", "params", "giga"),
    [
        ("t2t_vit_14", 21.5, 4.8),
        ("t2t_vit_19", 39.2, 8.5),
        ("t2t_vit_24", 64.1, 13.7),  # published as 13.8
        ("t2t_vit_t_14", 21.5, 6.1),
        ("t2t_vit_t_19", 39.2, 9.8),
        ("t2t_vit_t_24", 64.1, 15.0),
    ],
)
def test_t2t_vit_sizes_as_published(name: str, params: float, giga: float) -> None:
    with torch.device("meta"):  # shapes are all that counts
        cost = profile(build(name), torch.empty(1, 3, 224, 224))
    assert round(cost.params / 1e6, 1) == params
    assert round(cost.madds / 1e9, 1) == giga


@pytest.mark.parametrize("name", ["t2t_vit_14", "t2t_vit_t_14"])
def test_t2t_vit_trains_and_keeps_the_fixed_parts_fixed(name: str) -> None:
    model = build(name, img_size=32, depth=2, num_classes=5, drop_path_rate=0.5)
    model(rand(4, 3, 32, 32)).square().sum().backward()
    frozen = {key for key, p in model.named_parameters() if not p.requires_grad}
    assert {"pos_embed"} <= frozen <= {"pos_embed", *(f"tokens_to_token.attention{i}.w" for i in (1, 2))}
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    model.eval()
    assert model(rand(2, 3, 32, 32)).shape == (2, 5)
    assert torch.equal(model(rand(2, 3, 32, 32)), model(rand(2, 3, 32, 32)))


def test_attention_equals_torchs_own_and_loses_a_head_exactly() -> None:
    layer, x = Attention(12, 12, num_heads=3, head_dim=4).double(), rand(2, 5, 12).double()
    q, k, v = layer.qkv(x).view(2, 5, 3, 3, 4).permute(2, 0, 3, 1, 4)
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 12)
    torch.testing.assert_close(layer(x), layer.proj(expected), rtol=0, atol=1e-12)
    small = copy.deepcopy(layer)
    with torch.no_grad():
        layer.proj.weight[:, 4:8] = 0
        rows = torch.tensor([i for i in range(36) if i % 12 // 4 != 1])
        small.qkv.weight = nn.Parameter(layer.qkv.weight[rows])
        small.proj.weight = nn.Parameter(layer.proj.weight[:, [0, 1, 2, 3, 8, 9, 10, 11]])
    small.num_heads = 2
    torch.testing.assert_close(small(x), layer(x), rtol=0, atol=1e-12)


def test_performer_approaches_softmax_attention() -> None:
    torch.manual_seed(0)
    layer = TokenPerformer(6, 4, feature_ratio=1.0).double()
    layer.features = 200_000
    layer.w = nn.Parameter(torch.randn(200_000, 4, dtype=torch.float64), requires_grad=False)
    x = rand(1, 7, 6).double()
    k, q, v = layer.kqv(x).split(4, dim=-1)
    exact = v + layer.proj((q @ k.transpose(1, 2)).softmax(-1) @ v)
    torch.testing.assert_close(layer._attend(x), exact, rtol=0, atol=0.02)


def test_token_transformer_narrows_with_the_values_as_shortcut() -> None:
    layer = TokenTransformer(18, 6)
    nn.init.zeros_(layer.attn.proj.weight)
    nn.init.zeros_(layer.mlp.fc2.weight)
    with torch.no_grad():
        layer.attn.proj.bias.zero_()
        layer.mlp.fc2.bias.zero_()
    x = rand(2, 5, 18)
    torch.testing.assert_close(layer(x), layer.attn.qkv(layer.norm1(x))[..., 12:])


def test_sinusoid_positions() -> None:
    table = sinusoid_positions(5, 6)[0]
    assert table.shape == (5, 6)
    assert torch.equal(table[0], torch.tensor([0.0, 1.0] * 3))
    torch.testing.assert_close(table[3, 2], torch.tensor(3 / 10000 ** (2 / 6)).sin())


@pytest.mark.parametrize("kwargs", [{"num_heads": 5}, {"img_size": 100}, {"tokens_type": "conv"}])
def test_t2t_vit_rejects(kwargs: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(kwargs))):
        build("t2t_vit_14", **kwargs)


def test_names_build() -> None:
    assert {"resnet20", "resnet110", "digitsnet", "t2t_vit_24"} <= set(names())
    with pytest.raises(ConfigError, match="no model is called 'pcshrink:resnet21'; did you mean pcshrink:resnet"):
        build("pcshrink:resnet21")
    with pytest.raises(ConfigError, match="the names of this package are digitsnet"):
        build("zzz")
