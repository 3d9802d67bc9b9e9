"""Families as timm and transformers have them, small: what must be able to leave can, and the cut is exact."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pcshrink as pcs
from pcshrink.errors import NoSitesError
from testing.checks import LIMIT, outputs, random_keep, relative, stir_gates_
from testing.families import Family, noise, words

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.equivalence

SMALL = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "vocab_size": 20, "pad_token_id": 0}
GROUPED = SMALL | {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4}
PICTURE = noise(2, 3, 32, 32)


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, pretrained=False, num_classes=5, **options)


def _text(name: str, **settings: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model = getattr(transformers, name)
        return model(model.config_class(**settings))

    return build


def _no_cache(seed: int) -> Any:
    return words(2, 7)(seed) | {"use_cache": False}


class SamePadding(nn.Module):
    """Standardised filters with the padding of TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        kind = timm.layers.ScaledStdConv2dSame
        self.a, self.b = kind(3, 8, 3, stride=2), kind(8, 6, 3, stride=2, groups=2)
        self.c, self.head = timm.layers.StdConv2dSame(6, 5, 2, stride=2), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.c(torch.relu(self.b(torch.relu(self.a(x))))).mean((2, 3)))


def _blurred() -> nn.Module:
    """Layers that keep a filter for every channel, and the number of channels."""
    parts = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), timm.layers.BlurPool2d(8), nn.Conv2d(8, 6, 3)]
    return nn.Sequential(*parts, nn.ReLU(), timm.layers.BlurPool2d(6, filt_size=5), nn.Conv2d(6, 4, 1))


def _shifted() -> nn.Module:
    """Activations with a learned shift, which do not map 0 to 0."""
    star = timm.models.metaformer.StarReLU
    one, two = star(scale_value=0.9, bias_value=-0.4), star(bias_value=0.3)
    return nn.Sequential(nn.Conv2d(3, 8, 3), one, nn.Conv2d(8, 6, 1), nn.BatchNorm2d(6), two, nn.Conv2d(6, 4, 3))


def _bit() -> nn.Module:
    norm = functools.partial(timm.layers.GroupNormAct, num_groups=8)
    widths = {"layers": (1, 1), "channels": (32, 64), "stem_chs": 16, "num_classes": 5, "drop_path_rate": 0.0}
    return timm.models.resnetv2.ResNetV2(**widths, conv_layer=timm.layers.StdConv2d, norm_layer=norm)


def _multiscale() -> nn.Module:
    widths = timm.models.mvitv2.MultiScaleVitCfg(
        depths=(1, 1), embed_dim=(12, 24), num_heads=(1, 3), stride_q=((1, 1), (2, 2)), stride_kv_adaptive=(2, 2)
    )
    return timm.models.mvitv2.MultiScaleVit(widths, img_size=64, num_classes=5)


# name: the network, its inputs, and layers that must be among the writers of groups
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], str]] = {
    "gpt2": (
        _text("GPT2LMHeadModel", n_embd=24, n_layer=2, n_head=4, vocab_size=20, n_positions=16),
        _no_cache,
        "transformer.h.0.attn.c_attn transformer.h.0.mlp.c_fc",
    ),
    "llama": (
        _text("LlamaForCausalLM", **GROUPED),
        _no_cache,
        "model.layers.1.self_attn.k_proj model.layers.1.mlp.up_proj",
    ),
    "qwen3": (_text("Qwen3ForCausalLM", **GROUPED), _no_cache, "model.layers.0.self_attn.v_proj"),
    "modernbert": (
        _text("ModernBertForMaskedLM", **SMALL, num_attention_heads=4),
        words(2, 7),
        "model.layers.1.attn.Wqkv model.layers.1.mlp.Wi",
    ),
    "deberta": (
        _text("DebertaV2Model", **SMALL, num_attention_heads=4, relative_attention=True, pos_att_type=["p2c", "c2p"]),
        words(2, 7),
        "encoder.layer.1.attention.self.pos_key_proj encoder.layer.1.attention.self.query_proj",
    ),
    "response norm": (
        _timm("convnextv2_atto", depths=(1, 1, 1, 1), dims=(8, 12, 12, 16)),
        PICTURE,
        "stages.0.blocks.0.mlp.fc1 stages.3.blocks.0.mlp.fc1",
    ),
    "standardised filters": (_timm("nf_resnet26", width_factor=0.25), PICTURE, "stem.conv stages.2.1.conv2"),
    "same padding": (lambda: SamePadding(), PICTURE, "a b"),
    "standardised filters and group norms": (_bit, PICTURE, "stem.conv stages.1.blocks.0.conv1"),
    "standardised filters of transformers": (
        _text("BitModel", embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], num_groups=8),
        PICTURE,
        "encoder.stages.0.layers.0.conv1 encoder.stages.1.layers.0.conv2",
    ),
    "shifted": (_shifted, PICTURE, "0 2"),
    "blurred": (_blurred, PICTURE, "0 4"),
    "tiny vit": (
        _timm("tiny_vit_5m_224", embed_dims=(8, 16, 24, 32), depths=(1, 1, 1, 1), num_heads=(2, 2, 3, 4),
              window_sizes=(4, 4, 4, 2)),
        noise(2, 3, 64, 64),
        "stages.1.blocks.0.attn.qkv stages.3.blocks.0.attn.qkv",
    ),
    "multiscale": (_multiscale, noise(1, 3, 64, 64), "stages.1.blocks.0.attn.qkv stages.1.blocks.0.mlp.fc1"),
    "recurrent mixer": (
        _timm("sequencer2d_s", img_size=32, patch_sizes=(4, 2), layers=(1, 1), embed_dims=(12, 16),
              hidden_sizes=(6, 8), mlp_ratios=(2.0, 2.0)),
        PICTURE,
        "stages.0.blocks.0.mlp_channels.fc1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_cut_is_exact(name: str) -> None:
    build, inputs, wanted = NETWORKS[name]
    case = Family(build, inputs, "")
    model, example, other = case.model(), inputs(1), inputs(7)
    shrinker = pcs.attach_(model, example)
    assert set(wanted.split()) <= {w for g in shrinker.groups for w in g.writers}, shrinker.report()
    stir_gates_(model)
    for seed, share in enumerate((0.0, 0.5)):
        plan = shrinker.plan(random_keep(shrinker, seed, share))
        small = pcs.compact(model, plan, example)
        shrinker.mask_(plan)
        expected, got = outputs(model, other), outputs(small, other)
        shrinker.unmask_()
        assert relative(expected, got) <= LIMIT[torch.float64]
        assert any(float(t.std()) > 1e-6 for t in expected), "a constant output proves nothing"


def test_an_eps_in_the_code_is_a_reason() -> None:
    settings = {"num_stages": 1, "hidden_sizes": [8], "depths": [1], "image_size": 32, "num_channels": 3}
    model = Family(_text("ConvNextV2Model", **settings), PICTURE, "").model()
    with pytest.raises(NoSitesError, match="divides by the mean over all channels, with an eps in its code"):
        pcs.attach_(model, PICTURE(1))
