"""From image files to what a network sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pcshrink.common.install import install_hint
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.data.augment import Normalizer
from pcshrink.data.decode import BrokenImage, open_image
from pcshrink.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

Transform = Callable[["Image"], Tensor]


def read_images(paths: Sequence[str | Path], preprocessing: Preprocessing) -> Tensor:
    """Read image files as a network wants to see them.

    Args:
        paths: The files.
        preprocessing: What the network wants.

    Returns:
        One batch, float32 (B, C, H, W).

    Raises:
        DataError: A file is missing or cannot be decoded.
    """
    transform, images = evaluation_transform(preprocessing), []
    for path in paths:
        image = open_image(str(path), grey=preprocessing.input_size[0] == 1)
        if isinstance(image, BrokenImage):
            message = f"cannot read the image {image}"
            raise DataError(message)
        images.append(transform(image))
    if not images:
        message = "there are no images to read"
        raise DataError(message)
    return Normalizer(preprocessing.mean, preprocessing.std)(torch.stack(images))


def evaluation_transform(preprocessing: Preprocessing) -> Transform:
    """From a decoded image to uint8 (C, H, W): everything but the normalisation.

    Raises:
        DataError: torchvision is missing.
    """
    v2 = torchvision_transforms()
    mode = v2.InterpolationMode(preprocessing.interpolation)
    size = list(preprocessing.input_size[1:])
    if preprocessing.resize:
        steps = [v2.Resize(preprocessing.resize, interpolation=mode, antialias=True), v2.CenterCrop(size)]
    else:
        steps = [v2.Resize(size, interpolation=mode, antialias=True)]
    return cast(Transform, v2.Compose([*steps, v2.PILToTensor()]))


def torchvision_transforms() -> Any:
    """The module that transforms images.

    Raises:
        DataError: torchvision is missing.
    """
    try:
        from torchvision.transforms import v2
    except ImportError as error:
        message = f"image files need torchvision; install it with {install_hint('torchvision')}"
        raise DataError(message) from error
    return v2
