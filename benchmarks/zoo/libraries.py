"""Architectures of libraries that only this benchmark needs: Ultralytics, segmentation models, MONAI, diffusers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.network import Network, image, noise, volume

# kind of model -> configurations; end-to-end heads choose the best boxes by themselves
ULTRALYTICS = {
    "DetectionModel": """yolov3-tiny yolov5n yolov6n yolov8n yolov8n-p6 yolov8n-ghost yolov9t yolov10n yolo11n yolo12n
        yolo26n""",
    "SegmentationModel": "yolov8n-seg yolov9c-seg yolo11n-seg yolo12n-seg yolo26n-seg",
    "PoseModel": "yolov8n-pose yolo11n-pose yolo26n-pose",
    "OBBModel": "yolov8n-obb yolo11n-obb yolo26n-obb",
    "ClassificationModel": "yolov8n-cls yolo11n-cls yolo26n-cls",
    "RTDETRDetectionModel": "rtdetr-l",
}
CHOOSING = ("yolov10", "yolo26", "rtdetr")
SEGMENTATION = "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer"
FLAT: dict[str, Any] = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
STEPS = {"channels": (8, 16, 32), "strides": (2, 2)}
MONAI: dict[str, dict[str, Any]] = {
    "UNet": FLAT | STEPS | {"num_res_units": 2},
    "AttentionUnet": FLAT | STEPS,
    "BasicUNet": FLAT | {"features": (8, 8, 16, 32, 64, 8)},
    "BasicUNetPlusPlus": FLAT | {"features": (8, 8, 16, 32, 64, 8)},
    "DynUNet": FLAT | {"kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2]},
    "FlexibleUNet": {"in_channels": 3, "out_channels": 2, "backbone": "efficientnet-b0", "spatial_dims": 2},
    "SegResNet": FLAT | {"init_filters": 16},
    "SegResNetDS": FLAT | {"init_filters": 16},
    "VNet": FLAT,
    "UNETR": FLAT | {"img_size": 64, "feature_size": 8, "hidden_size": 48, "mlp_dim": 96, "num_heads": 4},
    "SwinUNETR": FLAT | {"feature_size": 12},
    "DenseNet121": FLAT,
    "SEResNet50": {"spatial_dims": 2, "in_channels": 1, "num_classes": 2},
    "EfficientNetBN": {"model_name": "efficientnet-b0", "pretrained": False, "spatial_dims": 2, "in_channels": 1,
                       "num_classes": 2},
    "HighResNet": FLAT,
    "AutoEncoder": FLAT | {"channels": (8, 16, 32), "strides": (2, 2, 1)},
    "ViT": {"in_channels": 1, "img_size": 64, "patch_size": 16, "hidden_size": 48, "mlp_dim": 96, "num_layers": 3,
            "num_heads": 4, "classification": True, "spatial_dims": 2},
}  # fmt: skip
SOLID: dict[str, dict[str, Any]] = {
    "UNet": FLAT | STEPS | {"spatial_dims": 3, "num_res_units": 2},
    "SegResNet": FLAT | {"spatial_dims": 3, "init_filters": 8},
    "DynUNet": FLAT
    | {"spatial_dims": 3, "kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2]},
}
LATENT = {"block_out_channels": (32, 64), "norm_num_groups": 8, "layers_per_block": 1}
DIFFUSERS: dict[str, dict[str, Any]] = {
    "UNet2DModel": LATENT | {
        "sample_size": 16, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    },
    "UNet2DConditionModel": LATENT | {
        "sample_size": 16, "cross_attention_dim": 24, "attention_head_dim": 8,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    },
    "AutoencoderKL": LATENT | {
        "sample_size": 32, "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    "DiTTransformer2DModel": {
        "sample_size": 16, "num_layers": 2, "num_attention_heads": 4, "attention_head_dim": 8, "norm_num_groups": 8,
        "in_channels": 3,
    },
}  # fmt: skip


def networks() -> Iterator[Network]:
    """All of them."""
    for kind, names in ULTRALYTICS.items():
        side = 64 if kind == "ClassificationModel" else 128
        for name in names.split():
            chooses, make = name.startswith(CHOOSING), partial(_ultralytics, kind, name)
            yield Network(name, "Ultralytics", make, image(side, batch=1), f"{side} x {side}", chooses)
    for name in SEGMENTATION.split():
        side = 128 if name == "PAN" else 64
        make = partial(_segmentation, name)
        yield Network(name, "segmentation_models_pytorch", make, image(side), f"{side} x {side}")
    for name, options in MONAI.items():
        channels = options.get("in_channels", 1)
        yield Network(name, "MONAI", partial(_monai, name, options), image(64, channels), "64 x 64")
    for name, options in SOLID.items():
        yield Network(f"{name} 3d", "MONAI", partial(_monai, name, options), volume(16), "16 x 16 x 16")
    for name, options in DIFFUSERS.items():
        yield Network(name, "diffusers", partial(_diffusers, name, options), partial(_noisy, name), "16 x 16")


def _ultralytics(kind: str, name: str) -> nn.Module:
    os.environ.setdefault("YOLO_OFFLINE", "true")
    from ultralytics.nn import tasks

    return getattr(tasks, kind)(f"{name}.yaml", verbose=False)


def _segmentation(name: str) -> nn.Module:
    import segmentation_models_pytorch

    encoder = "mit_b0" if name == "Segformer" else "resnet18"
    return getattr(segmentation_models_pytorch, name)(encoder_name=encoder, encoder_weights=None, classes=3)


def _monai(name: str, options: dict[str, Any]) -> nn.Module:
    from monai.networks import nets

    return getattr(nets, name)(**options)


def _diffusers(name: str, options: dict[str, Any]) -> nn.Module:
    import diffusers

    return getattr(diffusers, name)(**options)


def _noisy(name: str, dtype: torch.dtype, seed: int) -> Any:
    channels, side = (3, 32) if name == "AutoencoderKL" else (4 if name == "UNet2DConditionModel" else 3, 16)
    sample, step = noise((2, channels, side, side), dtype, seed), torch.tensor([1, 7])
    if name == "AutoencoderKL":
        return {"sample": sample}
    if name == "UNet2DConditionModel":
        return {"sample": sample, "timestep": step, "encoder_hidden_states": noise((2, 5, 24), dtype, seed + 9)}
    if name == "DiTTransformer2DModel":
        return {"hidden_states": sample, "timestep": step, "class_labels": torch.tensor([2, 5])}
    return {"sample": sample, "timestep": step}
