"""Opens image files, and says why one cannot be opened."""

import dataclasses
import os
from typing import TYPE_CHECKING

from pcshrink.common.install import install_hint
from pcshrink.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

# What the names of image files promise. Pillow would open anything by its content, a page description by running
# Ghostscript.
PHOTOGRAPHS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")


@dataclasses.dataclass(frozen=True)
class BrokenImage:
    """An image that cannot be decoded.

    Attributes:
        path: The file.
        reason: What the decoder says.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def open_image(path: str, *, grey: bool = False) -> "Image | BrokenImage":
    """Decode an image to RGB or to grey, or say why not.

    Raises:
        DataError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        msg = f"image files need Pillow and torchvision; install them with {install_hint('PIL')}"
        raise DataError(msg) from error
    try:
        with Image.open(path, formats=PHOTOGRAPHS) as image:
            return image.convert("L" if grey else "RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        return BrokenImage(path, f"{type(error).__name__}: {error}")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
