"""Transformers: whole heads and hidden features leave, embedding widths stay, all of it exactly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.data.digits import load_digits
from pcshrink.models.t2t_vit import T2TViT
from pcshrink.surgery.attention import adapted, find_adapter
from pcshrink.surgery.gates import find_gates
from testing.checks import LIMIT, outputs, random_keep, relative, stir_gates_
from testing.nets import randomise_

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
pytestmark = pytest.mark.equivalence


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, pretrained=False, num_classes=7, **options)


def _vit(**options: Any) -> Callable[[], nn.Module]:
    given = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 48}
    return lambda: torchvision.models.VisionTransformer(**given | options, num_classes=7)


def _torchvision_swin(version: int) -> Callable[[], nn.Module]:
    swin = torchvision.models.swin_transformer
    extra = {"block": swin.SwinTransformerBlockV2, "downsample_layer": swin.PatchMergingV2} if version == 2 else {}
    return lambda: swin.SwinTransformer(
        [4, 4], 24, [2, 2], [3, 6], [4, 4], stochastic_depth_prob=0.1, num_classes=7, **extra
    )


def _t2t(kind: str) -> Callable[[], nn.Module]:
    return lambda: T2TViT(
        embed_dim=32,
        depth=2,
        num_heads=4,
        token_dim=16,
        img_size=32,
        num_classes=7,
        drop_path_rate=0.1,
        tokens_type=kind,
    )


class Cross(nn.Module):
    """Cross attention with separate widths, a padding mask, and sequence-first layout."""

    def __init__(self, batch_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 24, 8, 8)
        self.memory = nn.Linear(24, 12)
        self.attn = nn.MultiheadAttention(24, 4, kdim=12, vdim=12, batch_first=batch_first)
        self.own = nn.MultiheadAttention(24, 3, batch_first=batch_first, bias=False)
        self.head = nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2)
        tokens = tokens.transpose(1, 2) if self.attn.batch_first else tokens.permute(2, 0, 1)
        memory = self.memory(tokens)
        hidden = torch.zeros(x.shape[0], 16, dtype=torch.bool)
        hidden[:, 12:] = True
        tokens = tokens + self.attn(tokens, memory, memory, key_padding_mask=hidden, need_weights=False)[0]
        causal = torch.ones(16, 16, dtype=torch.bool).triu(1)
        tokens = tokens + self.own(tokens, tokens, tokens, attn_mask=causal, need_weights=False)[0]
        return self.head(tokens.mean(dim=1 if self.attn.batch_first else 0))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(24, 4, 40, batch_first=True, norm_first=True)
    return nn.Sequential(
        nn.Conv2d(3, 24, 8, 8), nn.Flatten(2), Swap(), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.LayerNorm(24), nn.Linear(24, 7),
    )  # fmt: skip


class Film(nn.Module):
    """A picture as a film that moves."""

    def __init__(self) -> None:
        super().__init__()
        swin = torchvision.models.video.swin_transformer
        self.net = swin.SwinTransformer3d([2, 4, 4], 24, [2, 2], [3, 6], [2, 4, 4], num_classes=7)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.stack([x.roll(i, -1) for i in range(8)], dim=2))


class Swap(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
# name: builder, image size, modules whose heads leave
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "vit": (_timm("vit_tiny_patch16_224", **VIT), 32, 2),
    "vit_scaled": (_timm("vit_tiny_patch16_224", **VIT, init_values=1.0, qk_norm=True, drop_path_rate=0.1), 32, 2),
    "deit": (_timm("deit_tiny_distilled_patch16_224", **VIT), 32, 2),
    "beit": (_timm("beit_base_patch16_224", **VIT), 32, 2),
    "swin": (
        _timm(
            "swin_tiny_patch4_window7_224",
            img_size=32,
            patch_size=2,
            window_size=4,
            embed_dim=24,
            depths=(2, 2),
            num_heads=(3, 6),
        ),
        32,
        4,
    ),
    "convnext": (_timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 24)), 32, 0),
    "mobilevit": (_timm("mobilevit_xxs"), 64, 9),
    "t2t_performer": (_t2t("performer"), 32, 2),
    "t2t_transformer": (_t2t("transformer"), 32, 2),
    "torchvision_vit": (_vit(), 32, 2),
    "torchvision_swin": (_torchvision_swin(1), 32, 4),
    "torchvision_swin_v2": (_torchvision_swin(2), 32, 4),
    "torchvision_swin_3d": (Film, 32, 4),
    "encoder": (_encoder, 32, 2),
    "cross": (Cross, 32, 2),
    "cross_batch_first": (lambda: Cross(batch_first=True), 32, 2),
}
each_network = pytest.mark.parametrize("name", NETWORKS)


def prepare(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor, Tensor]:
    build, size, _ = NETWORKS[name]
    torch.manual_seed(0)
    model = randomise_(build()).to(dtype).eval()
    first, second = (torch.randn(3, 3, size, size).to(dtype) for _ in range(2))
    return model, first, second


def heads_of(shrinker: pcs.Shrinker) -> list[Any]:
    return [g for g in shrinker.coupling.groups if any(site.at_input for site in g.sites)]


@each_network
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_exact(name: str, dtype: torch.dtype) -> None:
    model, example, other = prepare(name, dtype)
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    assert len(heads_of(shrinker)) == NETWORKS[name][2]
    plan = shrinker.plan(random_keep(shrinker, seed=2, share=0.5))
    small = pcs.compact(model, plan, example)
    folded = pcs.compact(model, plan, example, gates="fold")
    shrinker.mask_(plan)
    expected = outputs(model, other)
    assert float(expected[0].std()) > 1e-3
    assert relative(expected, outputs(small, other)) <= LIMIT[dtype]
    for gate in find_gates(model).values():
        gate.blend = 1.0
    assert relative(outputs(model, other), outputs(folded, other)) <= LIMIT[dtype]


@each_network
def test_replayed_plan_copies_and_detaches(name: str) -> None:
    """A plan cuts a fresh model alike; state_dict round trip; deepcopy; the gated model goes back to what it was."""
    model, example, other = prepare(name)
    fresh, before = copy.deepcopy(model), outputs(model, other)
    shrinker = pcs.attach_(model, example)
    plan = pcs.PrunePlan.from_json(shrinker.plan(random_keep(shrinker, seed=5)).to_json())
    small = pcs.detach_(pcs.compact(model, plan, example))
    again = pcs.compact(fresh, plan, example)
    assert relative(outputs(small, other), outputs(again, other)) == 0
    again.load_state_dict({k: v + 0.01 if v.is_floating_point() else v for k, v in again.state_dict().items()})
    again.load_state_dict(small.state_dict())
    assert relative(outputs(small, other), outputs(copy.deepcopy(again), other)) == 0
    pcs.detach_(model)
    assert relative(before, outputs(model, other)) == 0
    assert not [m for m in (*model.modules(), *fresh.modules()) if "forward" in vars(m)]


def test_attributes_follow_the_heads() -> None:
    for name, module, width in (("vit", "blocks.0.attn", "attn_dim"), ("torchvision_vit", "", ""), ("swin", "", "")):
        model, example, _ = prepare(name)
        shrinker = pcs.attach_(model, example)
        keep = {g.name: torch.arange(g.channels) < 2 for g in heads_of(shrinker)}
        small = pcs.compact(model, shrinker.plan(keep), example)
        counted = [m.num_heads for m in small.modules() if hasattr(m, "qkv") or hasattr(m, "in_proj_weight")]
        assert counted
        assert set(counted) == {2}
        if module:
            attention = small.get_submodule(module)
            assert (attention.head_dim, getattr(attention, width), attention.proj.in_features) == (16, 32, 32)
            assert attention.qkv.out_features == 3 * 32
    tables = {tuple(p.shape) for n, p in small.named_parameters() if n.endswith("relative_position_bias_table")}
    assert tables == {(49, 2)}


def test_embedding_widths_stay_with_the_reason() -> None:
    model, example, _ = prepare("vit")
    refused = pcs.attach_(model, example).refused
    assert "normalises over the channels" in refused["patch_embed.proj"]
    assert set(refused) == {"patch_embed.proj", "head"} | {
        f"blocks.{i}.{n}" for i in (0, 1) for n in ("attn.proj", "mlp.fc2")
    }


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("single", [True, False])
def test_adapted_attention_computes_the_same(weights: bool, single: bool) -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(12, 3, batch_first=True).double().eval()
    query, key = (torch.randn(*([] if single else [2]), n, 12).double() for n in (5, 6))
    options = {"need_weights": weights, "average_attn_weights": False, "attn_mask": torch.randn(5, 6).double()}
    adapter = find_adapter(attention)
    assert adapter is not None
    for pair in zip(
        attention(query, key, key, **options), adapter.forward(attention, query, key, key, **options), strict=True
    ):
        assert (pair[0] is None) == (pair[1] is None)
        if pair[0] is not None:
            torch.testing.assert_close(pair[0], pair[1])
    assert find_adapter(nn.MultiheadAttention(12, 3, add_bias_kv=True)) is None


@pytest.mark.parametrize("size", [(8, 8), (9, 6), (3, 5), (4, 8, 8), (5, 6, 9), (1, 3, 8)])
def test_adapted_windows_compute_the_same(size: tuple[int, ...]) -> None:
    swin, film = torchvision.models.swin_transformer, torchvision.models.video.swin_transformer
    kind = film.ShiftedWindowAttention3d if len(size) == 3 else swin.ShiftedWindowAttention
    window, shift = ([2, 4, 4], [1, 2, 2]) if len(size) == 3 else ([4, 4], [2, 2])
    torch.manual_seed(0)
    attention = randomise_(kind(12, window, shift, 3)).double().eval()
    nn.init.normal_(attention.relative_position_bias_table)
    x = torch.randn(2, *size, 12).double()
    own = attention(x)
    with adapted([attention]):
        torch.testing.assert_close(attention(x), own)


@pytest.mark.parametrize("shared", [False, True])
def test_adapted_beit_computes_the_same(shared: bool) -> None:
    torch.manual_seed(0)
    attention = timm.models.beit.Attention(12, 3, qkv_bias=True, window_size=None if shared else (2, 2)).double().eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    arguments = (torch.randn(2, 5, 12).double(), torch.randn(1, 3, 5, 5).double() if shared else None)
    own = attention(*arguments)
    with adapted([attention]):
        torch.testing.assert_close(attention(*arguments), own)


def test_a_fixed_number_of_masks_keeps_the_heads() -> None:
    """A mask of its own for each head comes from outside and cannot shrink along."""

    class Masked(Cross):
        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            mask = torch.arange(3.0).repeat(x.shape[0])[:, None, None] * torch.ones(16, 16)
            return self.head(self.own(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0].mean(dim=1))

    shrinker = pcs.attach_(Masked(batch_first=True).eval(), torch.randn(2, 3, 32, 32))
    assert not heads_of(shrinker)
    assert "a fixed number of heads" in shrinker.refused["own"]


@pytest.mark.train
def test_vit_learns_digits_while_it_shrinks() -> None:
    """Heads and hidden features are pushed out in training; the compact model is proven and keeps what it learnt."""
    torch.manual_seed(0)
    images, labels, test_images, test_labels = load_digits()
    images, test_images = images.float() / 128 - 1, test_images.float() / 128 - 1
    model = timm.create_model(
        "vit_tiny_patch16_224", pretrained=False, img_size=16, patch_size=4, in_chans=1, embed_dim=48, depth=2,
        num_heads=4, num_classes=10,
    )  # fmt: skip
    shrinker = pcs.attach_(model, images[:2], pcs.ShrinkConfig(total_steps=200, lr=3e-3, optimizer="adamw"))
    pcs.set_budget(shrinker, images[:2], madds=0.6, gates="fold")
    assert len(heads_of(shrinker)) == 2
    optimizer = torch.optim.AdamW(shrinker.param_groups(weight_decay=1e-2), lr=3e-3)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (350 - step) / 150))
    model.train()
    for step in range(350):
        shrinker.settle(min(max(step - 200, 0) / 75, 1.0))
        batch = torch.randint(0, len(images), (32,))
        (F.cross_entropy(model(images[batch]), labels[batch]) + shrinker.penalty()).backward()
        optimizer.step()
        optimizer.zero_grad()
        shrinker.step()
        falling.step()
    plan = shrinker.plan()
    small = pcs.compact(model, plan, images[:2], gates="fold").eval()
    with torch.no_grad():
        error = float((small(test_images).argmax(1) != test_labels).float().mean())
    assert error < 0.15
    madds = [pcs.profile(net, images[:1]).madds for net in (pcs.detach_(model), small)]
    assert madds[1] == pytest.approx(0.6 * madds[0], rel=0.02)
