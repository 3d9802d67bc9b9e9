"""From the name of a data set to its batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from pcshrink.common.preprocessing import IMAGENET, Preprocessing
from pcshrink.data.config import DataConfig
from pcshrink.data.registry import DATASETS, DataSet
from pcshrink.data.source import ImageData
from pcshrink.errors import ConfigError


def load_dataset(
    name: str | DataSet | Callable[..., ImageData],
    root: str | Path | None = None,
    config: DataConfig | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    evaluation_only: bool = False,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
    trust: bool = False,
) -> ImageData:
    """Load a data set by name.

    Args:
        name: `"digits"` (comes with the package), `"cifar10"` (see `prepare_cifar10`), `"folder"`
            (`root/train/CLASS/*` and `root/val/CLASS/*`), a name given to `DATASETS.register`, or
            `"package.module:callable"`; or a `DataSet` or its `load` function itself.
        root: Folder of the data; digits need none.
        config: How batches are made.
        preprocessing: What the network wants to see (`pcshrink.models.usual_preprocessing`), for what `config` leaves
            open where images are resized; by default what is usual for ImageNet.
        evaluation_only: Open what is needed to evaluate; of a folder `root/val/CLASS/*` or a plain `root/CLASS/*`.
        rank: This process.
        world_size: How many processes share every global batch and the evaluation.
        device: Where batches are delivered. In-memory sets live there and are augmented there.
        trust: Run the code that `"package.module:callable"` names.

    Raises:
        ConfigError: The name is unknown or not trusted, or an option does not fit the data set.
        DataError: The data are missing or damaged.

    Example:
        >>> data = load_dataset("digits", config=DataConfig(batch_size=32))
        >>> data.num_classes, data.input_shape, len(data.train), data.val.num_samples
        (10, (1, 16, 16), 44, 360)
        >>> images, labels = next(data.train.batches(epoch=3, start_batch=7))
        >>> images.shape, labels.shape
        (torch.Size([32, 1, 16, 16]), torch.Size([32]))
    """
    config = config or DataConfig()
    if not isinstance(config, DataConfig):
        msg = f"config must be a DataConfig, such as DataConfig(batch_size=64), got {type(config).__name__}"
        raise ConfigError(msg)
    data_set = DATASETS.get(name, trust=trust)
    config.refuse_options_without_effect(data_set.name, data_set.options)
    if data_set.needs_root and root is None:
        msg = f"the data set {data_set.name!r} needs a root folder"
        raise ConfigError(msg)
    if root is not None and not data_set.takes_root:
        msg = f"a root folder has no effect on the data set {data_set.name!r}; remove it (got {root})"
        raise ConfigError(msg)
    network = preprocessing or IMAGENET
    config = config.completed(network, data_set.options, statistics=not data_set.own_statistics)
    load = data_set.load_val if evaluation_only and data_set.load_val is not None else data_set.load
    data = load(root, config, rank=rank, world_size=world_size, device=device)
    if not isinstance(data, ImageData):
        msg = f"loading the data set {data_set.name!r} must give an ImageData, got {type(data).__name__}"
        raise ConfigError(msg)
    return data
