"""The salience of images in an exported file: pooling and generator as layers of images (B, C, 1, 1).

Runtimes keep images in a blocked layout of their own. Sums, reshapes and matrix products need them in the plain one, so
every gate would change the layout of whole maps to and fro; average pooling and 1 x 1 convolutions do not. The images
that a network is given are in the plain layout, where runtimes pool one by one what they add up in long rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcshrink.methods.pcs.generator import SalienceGenerator

GIVEN = 4  # channels of the images that a network is given, at most


def exports_images(x: Tensor, axis: int) -> bool:
    """Whether x are images whose network is being written to a file."""
    return x.ndim == 4 and axis == 1 and torch.onnx.is_in_onnx_export()


def pool_images(x: Tensor) -> Tensor:
    """Mean over space: (B, C, H, W) -> (B, C, 1, 1)."""
    if x.shape[1] <= GIVEN:
        return x.mean(dim=(2, 3), keepdim=True)
    return F.avg_pool2d(x, (int(x.shape[2]), int(x.shape[3])))


def generate_for_images(generator: SalienceGenerator, pooled: Tensor, like: Tensor) -> Tensor:
    """The generator in evaluation mode, its norm part of the first layer: (B, C_in, 1, 1) -> as many places as like."""
    weight: Tensor = generator.fc1.weight
    bias: Tensor | None = generator.fc1.bias
    norm = generator.norm
    # Where norms were folded before the export, there is none left.
    if isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None:
        scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
        before = 0 if bias is None else bias
        weight, bias = weight * scale[:, None], norm.bias + (before - norm.running_mean) * scale
    hidden = F.relu(F.conv2d(pooled, weight[:, :, None, None], bias))
    last = generator.fc2
    salience = F.hardsigmoid(F.conv2d(hidden, last.weight[:, :, None, None], last.bias))
    # onnxruntime multiplies in its own layout only what has the same shape.
    return F.interpolate(salience, scale_factor=(float(like.shape[2]), float(like.shape[3])), mode="nearest")
