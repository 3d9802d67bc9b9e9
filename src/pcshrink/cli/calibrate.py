"""Images to calibrate an 8-bit network with, and others to compare it on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pcshrink.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from pcshrink.common.preprocessing import Preprocessing

MOST = 256  # images to calibrate with; ranges hardly change beyond


def image_batches(folder: Path, preprocessing: Preprocessing, batch: int) -> tuple[Iterator[Tensor], Iterator[Tensor]]:
    """Whole batches of the images to calibrate with, and of those held out.

    Raises:
        DataError: There are too few images.
    """
    from pcshrink.data.images import read_images
    from pcshrink.data.unlabelled import scan_unlabelled

    files = scan_unlabelled(folder)
    for kind, paths in (("calibrate with", files.train.paths), ("hold out", files.val.paths)):
        if len(paths) < batch:
            message = f"{folder} has {len(paths)} images to {kind}, fewer than a batch of {batch}; add images"
            raise DataError(message)

    def batches(paths: tuple[str, ...]) -> Iterator[Tensor]:
        for start in range(0, len(paths) - batch + 1, batch):
            yield read_images(paths[start : start + batch], preprocessing)

    # Evenly over the folder, since files of one kind often stand together.
    step = max(len(files.train.paths) // MOST, 1)
    return batches(files.train.paths[::step][:MOST]), batches(files.val.paths)
