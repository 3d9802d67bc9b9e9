"""How images become the input of a network by name, as its authors do it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from pcshrink.common.preprocessing import IMAGENET, INTERPOLATIONS, Preprocessing
from pcshrink.models import hugging
from pcshrink.models.registry import create, default_input, resolve

# The mean of the three colours', for networks that see grey.
_GREY_MEAN, _GREY_STD = (0.449,), (0.226,)
# What libraries call the arguments that give a network another input than its usual one.
_SIZES, _CHANNELS = ("img_size", "image_size"), ("in_chans", "in_channels", "num_channels")


def usual_preprocessing(model_or_spec: nn.Module | str, args: Mapping[str, object] | None = None) -> Preprocessing:
    """What the authors of a network feed it with: timm's data configuration, the transforms of torchvision's weights.

    Where nothing is stated it is what ImageNet networks usually get, at the network's usual size.

    Args:
        model_or_spec: A model, or what ``create`` takes; code of your own is not run.
        args: What the model is made with; another size or number of channels of the input counts.

    Raises:
        ConfigError: There is no such model.

    Example:
        >>> usual_preprocessing("torchvision:resnet50").resize
        232
        >>> usual_preprocessing("torchvision:vit_b_16", {"image_size": 112}).resize
        128
    """
    return _made_with(_usual(model_or_spec), args or {})


def _made_with(usual: Preprocessing, args: Mapping[str, object]) -> Preprocessing:
    """The same for a network that was asked to take other inputs."""
    channels, height, width = usual.input_size
    wanted = next((args[name] for name in _SIZES if name in args), None)
    size = wanted if isinstance(wanted, int) else tuple(wanted) if isinstance(wanted, (tuple, list)) else None
    if size:  # what is no size at all is for the network to refuse
        height, width = (size, size) if isinstance(size, int) else (size[0], size[-1])
        resize = usual.resize_for(height) if height == width else 0
        usual = replace(usual, input_size=(channels, height, width), resize=resize)
    seen = next((args[name] for name in _CHANNELS if args.get(name) in (1, 3)), channels)
    if (channels, seen) == (3, 1):
        mean, std = (round(sum(values) / 3, 4) for values in (usual.mean, usual.std))
        usual = replace(usual, input_size=(1, height, width), mean=(mean,), std=(std,))
    elif (channels, seen) == (1, 3):
        usual = replace(usual, input_size=(3, height, width), mean=IMAGENET.mean, std=IMAGENET.std)
    return usual


def _usual(model_or_spec: nn.Module | str) -> Preprocessing:
    if isinstance(model_or_spec, nn.Module):
        for attribute in ("pretrained_cfg", "default_cfg"):
            stated = getattr(model_or_spec, attribute, None)
            if isinstance(stated, dict) and "mean" in stated:
                return _from_timm(stated)
        return _at_size(default_input(model_or_spec))
    source, name = resolve(model_or_spec)
    if source == "timm" and name.startswith("hf"):
        return _usual(create(model_or_spec))
    if source == "timm":
        config = importlib.import_module("timm").get_pretrained_cfg(name)
        return _from_timm(config.to_dict()) if config else IMAGENET
    if source == hugging.PREFIX:
        return hugging.stated_preprocessing(name) or _at_size(default_input(model_or_spec))
    if source == "torchvision":
        return _from_torchvision(name) or _at_size(default_input(model_or_spec))
    return _at_size(default_input(model_or_spec)) if source else IMAGENET


def _at_size(shape: tuple[int, ...]) -> Preprocessing:
    if len(shape) != 3 or shape[0] not in (1, 3):
        return IMAGENET
    mean, std = (_GREY_MEAN, _GREY_STD) if shape[0] == 1 else (IMAGENET.mean, IMAGENET.std)
    channels, height, width = shape
    resize = IMAGENET.resize_for(height) if height == width else 0
    return Preprocessing(input_size=(channels, height, width), mean=mean, std=std, resize=resize)


def _from_timm(stated: Mapping[str, Any]) -> Preprocessing:
    channels, height, width = stated["input_size"]
    mode = stated.get("interpolation")
    crops = height == width and stated.get("crop_mode", "center") != "squash"
    return Preprocessing(
        input_size=(channels, height, width), mean=tuple(stated["mean"]), std=tuple(stated["std"]),
        resize=math.floor(height / (stated.get("crop_pct") or 0.875)) if crops else 0,
        interpolation=mode if mode in INTERPOLATIONS else "bilinear",
    )  # fmt: skip


def _from_torchvision(name: str) -> Preprocessing | None:
    models = importlib.import_module("torchvision.models")
    best = getattr(models.get_model_weights(name), "DEFAULT", None)
    transform: Any = best.transforms() if best is not None else None
    if type(transform).__name__ != "ImageClassification":
        return None  # other tasks are not about one label for an image
    size = transform.crop_size[0]
    return Preprocessing(
        input_size=(len(transform.mean), size, size), mean=tuple(transform.mean), std=tuple(transform.std),
        resize=transform.resize_size[0], interpolation=transform.interpolation.value,
    )  # fmt: skip
