"""Small shards, as this library and others write them, for the tests that read them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pcshrink.data import DataConfig, ImageData, load_dataset

SMALL: dict[str, Any] = {"batch_size": 4, "eval_batch_size": 3, "image_size": 16, "resize_size": 20, "workers": 0}


def picture(number: int = 0, kind: str = "PNG") -> bytes:
    """An image file of noise, another one for each number."""
    from PIL import Image

    noise = np.random.default_rng(number).integers(0, 256, (24, 30, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).save(stream, kind)
    return stream.getvalue()


def shard(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """Write a tar of these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def sample(number: int, label: int | str | None = None) -> list[tuple[str, bytes]]:
    """As WebDataset's writer does: the key with leading zeros, its fields one after the other."""
    return [
        (f"{number:06d}.png", picture(number)),
        (f"{number:06d}.cls", str(number % 2 if label is None else label).encode()),
    ]


def samples(numbers: Iterable[int]) -> list[tuple[str, bytes]]:
    """Several, one after the other."""
    return [member for number in numbers for member in sample(number)]


def image_folder(root: Path) -> Path:
    """Cats and dogs to train on and to evaluate with."""
    for part, count in (("train", 6), ("val", 4)):
        for label, name in enumerate(("cat", "dog")):
            (root / part / name).mkdir(parents=True)
            for index in range(count):
                number = 1000 * (part == "val") + 100 * label + index
                (root / part / name / f"{index}.png").write_bytes(picture(number))
    return root


def load(root: Path, rank: int = 0, world_size: int = 1, name: str = "webdataset", **options: Any) -> ImageData:
    """The data set in a folder of shards, or of images."""
    return load_dataset(name, root, DataConfig(**{**SMALL, **options}), rank=rank, world_size=world_size)
