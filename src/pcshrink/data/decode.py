"""Opens image files, and says why one cannot be opened."""

import dataclasses
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pcshrink.common.install import install_hint
from pcshrink.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

# What the names of image files promise. Pillow would open anything by its content, a page description by running
# Ghostscript.
PHOTOGRAPHS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP")


class Span(NamedTuple):
    """Where an image lies that has no file of its own.

    Attributes:
        file: The file that holds it.
        offset: Where it begins there.
        size: Its length in bytes.
    """

    file: str
    offset: int
    size: int


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


def open_image(path: str, span: Span | None = None, *, grey: bool = False) -> "Image | BrokenImage":
    """Decode an image to RGB or to grey, or say why not.

    Args:
        path: The file, or what the image is called.
        span: Where it lies, if it has no file of its own.
        grey: One channel instead of three.

    Raises:
        DataError: Pillow is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        msg = f"image files need Pillow and torchvision; install them with {install_hint('PIL')}"
        raise DataError(msg) from error
    try:
        source = path if span is None else io.BytesIO(read_bytes(path, span))
        with Image.open(source, formats=PHOTOGRAPHS) as image:
            return image.convert("L" if grey else "RGB")
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        return BrokenImage(path, f"{type(error).__name__}: {error}")


def read_bytes(path: str, span: Span | None = None) -> bytes:
    """An image as it is stored; the arguments are those of `open_image`.

    Raises:
        OSError: It cannot be read, or ends early.
    """
    if span is None:
        return Path(path).read_bytes()
    with Path(span.file).open("rb") as file:
        file.seek(span.offset)
        content = file.read(span.size)
    if len(content) < span.size:
        msg = f"{span.file} ends in the middle of it; the file was changed while it is used"
        raise OSError(msg)
    return content


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
