"""Residual networks for 32 x 32 images (He et al. 2016, section 4.2): 6n + 2 layers in three stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.errors import ConfigError

Shortcut = Literal["A", "B"]


class PadShortcut(nn.Module):
    """Option A: take every ``stride``-th pixel and fill the missing channels with zeros; no parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        missing = out_channels - in_channels
        self.stride = stride
        self.before = missing // 2
        self.after = missing - self.before

    def forward(self, x: Tensor) -> Tensor:
        """Subsample and pad ``x``."""
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, each with its norm, and a sum before the last ReLU."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module
        if stride == 1 and in_channels == out_channels:
            self.downsample = nn.Identity()
        elif shortcut == "A":
            self.downsample = PadShortcut(in_channels, out_channels, stride)
        else:
            projection = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Residual sum, then ReLU."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.downsample(x))  # type: ignore[no-any-return]


class CifarResNet(nn.Module):
    """Stem, stages of basic blocks (each but the first halves the size), global pooling, one linear layer.

    Args:
        blocks: Residual blocks in each stage.
        num_classes: Width of the output.
        in_channels: Channels of the image.
        widths: Channels of each stage; the stem has as many as the first.
        shortcut: Where a block changes the shape: ``B`` projects by a 1 x 1 convolution and a norm, ``A``
            subsamples and pads with zero channels. ``B`` is the default: only with it a ResNet-20 has the
            41.4 M and a ResNet-32 the 70.1 M madds printed in the paper.
        image_size: Height and width of the images it is meant for; documentation only, any size runs.

    Raises:
        ConfigError: An argument does not describe such a network.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        num_classes: int = 10,
        in_channels: int = 3,
        widths: Sequence[int] = (16, 32, 64),
        shortcut: Shortcut = "B",
        image_size: int = 32,
    ) -> None:
        super().__init__()
        _check(blocks, widths, shortcut)
        if type(image_size) is not int or image_size < 1:
            message = f"image_size must be a whole number of at least 1, got {image_size!r}"
            raise ConfigError(message)
        self.input_size = (in_channels, image_size, image_size)
        self.num_classes = num_classes
        self.conv1 = nn.Conv2d(in_channels, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.stages = [f"layer{index}" for index in range(1, len(widths) + 1)]
        before = widths[0]
        for stage, depth, width in zip(self.stages, blocks, widths, strict=True):
            strides = [1 if stage == "layer1" else 2] + [1] * (depth - 1)
            inputs = [before] + [width] * (depth - 1)
            made = [BasicBlock(n, width, stride, shortcut) for n, stride in zip(inputs, strides, strict=True)]
            self.add_module(stage, nn.Sequential(*made))
            before = width
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(before, num_classes)
        self.apply(_initialise)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, num_classes) of images (B, in_channels, H, W)."""
        x = self.relu(self.bn1(self.conv1(x)))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]


def _check(blocks: Sequence[int], widths: Sequence[int], shortcut: str) -> None:
    if shortcut not in ("A", "B"):
        message = f"shortcut must be 'A' (zero padding) or 'B' (projection), got {shortcut!r}"
        raise ConfigError(message)
    if not widths or len(widths) != len(blocks):
        message = f"widths must give one number for each of the {len(blocks)} stages, got {list(widths)}"
        raise ConfigError(message)
    if shortcut == "A" and any(b < a for a, b in pairwise(widths)):
        message = f"shortcut 'A' can only add channels, got widths {list(widths)}; use shortcut='B'"
        raise ConfigError(message)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
        nn.init.zeros_(module.bias)


def _cifar(depth: int, **kwargs: object) -> CifarResNet:
    return CifarResNet([(depth - 2) // 6] * 3, **kwargs)  # type: ignore[arg-type]


def resnet20(**kwargs: object) -> CifarResNet:
    """CIFAR ResNet-20: 0.27 M parameters."""
    return _cifar(20, **kwargs)


def resnet32(**kwargs: object) -> CifarResNet:
    """CIFAR ResNet-32: 0.46 M parameters."""
    return _cifar(32, **kwargs)


def resnet44(**kwargs: object) -> CifarResNet:
    """CIFAR ResNet-44: 0.66 M parameters."""
    return _cifar(44, **kwargs)


def resnet56(**kwargs: object) -> CifarResNet:
    """CIFAR ResNet-56: 0.85 M parameters."""
    return _cifar(56, **kwargs)


def resnet110(**kwargs: object) -> CifarResNet:
    """CIFAR ResNet-110: 1.73 M parameters."""
    return _cifar(110, **kwargs)


def digitsnet(**kwargs: object) -> CifarResNet:
    """One block per stage for grey 16 x 16 (or 8 x 8) digits: learns them in seconds on a CPU."""
    return CifarResNet([1, 1, 1], **{"in_channels": 1, "image_size": 16} | kwargs)  # type: ignore[arg-type]
