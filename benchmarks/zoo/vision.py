"""Architectures of torchvision and timm, in short lists."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.network import Network, clip, image, pair

# name@side of the input; `i` after it: the model is told so (img_size), `v`: a clip of 8 frames, `d`: a detector.
# Default @64.
TORCHVISION = {
    "torchvision, convolutions": """
        alexnet vgg11 vgg11_bn vgg16_bn resnet18 resnet34 resnet50 resnext50_32x4d wide_resnet50_2 squeezenet1_0
        squeezenet1_1 densenet121 densenet169 googlenet@96 inception_v3@96 shufflenet_v2_x0_5 shufflenet_v2_x1_0
        mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet0_5 mnasnet1_0 efficientnet_b0 efficientnet_b1
        efficientnet_v2_s regnet_x_400mf regnet_x_800mf regnet_y_400mf regnet_y_800mf convnext_tiny""",
    "torchvision, segmentation": """
        fcn_resnet50 deeplabv3_mobilenet_v3_large deeplabv3_resnet50 lraspp_mobilenet_v3_large""",
    "torchvision, detection": """
        fasterrcnn_mobilenet_v3_large_320_fpn@96d retinanet_resnet50_fpn@96d fcos_resnet50_fpn@96d
        ssdlite320_mobilenet_v3_large@96d""",
    "torchvision, video": "r3d_18@32v mc3_18@32v r2plus1d_18@32v s3d@224v swin3d_t@64v",
    "torchvision, transformers": "vit_b_16@64i swin_t swin_v2_t maxvit_t@224",
}
TIMM = {
    "timm, convolutions": """
        resnet26t resnet10t resnetv2_50 resnetv2_18 resnetblur18 res2net50_14w_8s res2next50 resnest14d regnetx_002
        regnety_002 regnetz_b16 efficientnet_lite0 tf_efficientnetv2_b0 efficientnet_es mobilenetv1_100
        mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small ghostnet_050
        ghostnetv2_100 repghostnet_050 rexnet_100 hrnet_w18_small dla46_c dla60_res2net cspresnet50 cspdarknet53
        cs3darknet_s darknet17 ese_vovnet19b_slim ese_vovnet19b_dw repvgg_a0 mobileone_s0 convnext_atto
        convmixer_768_32 inception_next_atto inception_v4@96 inception_resnet_v2@96 xception41
        xception41p seresnet18 legacy_seresnet18 ecaresnet26t skresnet18 gcresnet33ts
        densenetblur121d dpn48b dpn68 selecsls42 tresnet_m gernet_s hgnetv2_b0 rdnet_tiny starnet_s1 tinynet_e
        lcnet_050 hardcorenas_a fbnetc_100 fbnetv3_b mnasnet_small spnasnet_100 semnasnet_050 mixnet_s""",
    "timm, no batch norm": """
        nf_regnet_b0 nf_resnet26 eca_nfnet_l0 dm_nfnet_f0 resnet50_gn resnetv2_50x1_bit convnextv2_atto""",
    "timm, transformers and mixers": """
        vit_tiny_patch16_224@64i deit_tiny_patch16_224@64i deit3_small_patch16_224@64i beit_base_patch16_224@64i
        eva02_tiny_patch14_224@70i cait_xxs24_224@64i xcit_nano_12_p16_224@64i swin_tiny_patch4_window7_224@224
        swinv2_cr_tiny_224@224 mixer_s32_224@64i gmlp_ti16_224@64i resmlp_12_224@64i
        poolformer_s12 poolformerv2_s12 pvt_v2_b0 twins_svt_small@64i tiny_vit_5m_224@224 pit_ti_224@224
        crossvit_9_240@240 convit_tiny@64i tnt_s_patch16_224@64i nest_tiny@224 volo_d1_224@64i davit_tiny
        mvitv2_tiny@224 hiera_tiny_224@224 sequencer2d_s@224 gcvit_xxtiny@224 vitamin_small_224@64i""",
    "timm, hybrids": """
        mobilenetv4_hybrid_medium mobilevit_xxs mobilevitv2_050 caformer_s18 edgenext_xx_small levit_128s@224
        levit_conv_128s@224 coat_lite_tiny@64i coatnet_nano_rw_224@224 efficientformer_l1@224
        efficientformerv2_s0@224 fastvit_t8 efficientvit_b0 efficientvit_m0@224 repvit_m0_9 shvit_s1 swiftformer_xs
        visformer_tiny@224 focalnet_tiny_srf botnet26t_256@256 halonet26t@256 lambda_resnet26t@128
        bat_resnext26ts@256 maxvit_nano_rw_256@256 mambaout_femto nextvit_small""",
}


def networks() -> Iterator[Network]:
    """All of them."""
    for lists, make, size in ((TORCHVISION, _torchvision, "image_size"), (TIMM, _timm, "img_size")):
        for family, names in lists.items():
            for entry in names.split():
                yield _read(family, entry, make, size)
    for version in (1, 2):
        film, make = clip(64, 8), partial(_multiscale, version)
        yield Network(f"mvit_v{version}, 4 blocks", "torchvision, video", make, film, "8 x 64 x 64")
    yield Network("raft_small", "torchvision, optical flow", partial(_flow, "raft_small"), pair(128), "2 x 128 x 128")


def _read(family: str, entry: str, make: Any, told_size: str) -> Network:
    name, _, size = entry.partition("@")
    side = int(size.rstrip("ivd") or 64)
    options: dict[str, Any] = {told_size: side} if size.endswith("i") else {}
    if name.endswith("_fpn"):
        options = {"min_size": side, "max_size": side}
    detector, film = size.endswith("d"), size.endswith("v")
    frames = 16 if name == "s3d" else 8
    example = clip(side, frames) if film else image(side, listed=detector)
    shown = f"{frames} x {side} x {side}" if film else f"{side} x {side}"
    return Network(name, family, partial(make, name, options), example, shown, detector)


def _timm(name: str, options: dict[str, Any]) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, **options)


def _torchvision(name: str, options: dict[str, Any]) -> nn.Module:
    import torchvision

    known: dict[str, Any] = {"weights": None}
    if name.startswith(("fcn_", "deeplabv3_", "lraspp_", "fasterrcnn_", "retinanet_", "fcos_", "ssdlite")):
        known |= {"weights_backbone": None}
    if name in ("googlenet", "inception_v3"):
        known |= {"init_weights": False, "aux_logits": False}
    return torchvision.models.get_model(name, **known, **options)


def _multiscale(version: int) -> nn.Module:
    """A short one: the known ones take films of 16 x 224 x 224 only."""
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    whole, half, quarter = [1, 1, 1], [1, 2, 2], [1, 4, 4]
    blocks = [
        MSBlockConfig(1, 48, 48, [3, 3, 3], [3, 3, 3], whole, quarter),
        MSBlockConfig(2, 48, 96, [3, 3, 3], [3, 3, 3], half, half),
        MSBlockConfig(2, 96, 96, [3, 3, 3], [3, 3, 3], whole, half),
        MSBlockConfig(4, 96, 192, [3, 3, 3], [3, 3, 3], half, whole),
    ]
    newer = version == 2
    return MViT((64, 64), 8, blocks, residual_pool=newer, residual_with_cls_embed=not newer, rel_pos_embed=newer,
                proj_after_attn=newer, num_classes=10)  # fmt: skip


class _LastFlow(nn.Module):
    """The newest of all estimates, after three rounds instead of twelve."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return self.model(one, two, 3)[-1]


def _flow(name: str) -> nn.Module:
    import torchvision

    return _LastFlow(torchvision.models.get_model(name, weights=None))
