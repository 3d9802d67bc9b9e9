"""Images in WebDataset shards, in the order and with the transforms of folders."""

from pathlib import Path

import torch

from pcshrink.data.config import DataConfig
from pcshrink.data.imagefolder import FOLDER, asked_order, for_evaluation, open_files
from pcshrink.data.registry import DataSet
from pcshrink.data.shard_scan import scan_shards, scan_shards_evaluation
from pcshrink.data.source import ImageData

_NAME = "webdataset"


def load_webdataset(
    root: str | Path,
    config: DataConfig,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """Open shards as `scan_shards` finds them; the arguments are those of `load_dataset`.

    Raises:
        DataError: There are no shards, one of them is unusable, or torchvision is missing.
    """
    files = scan_shards(
        root, asked_order(config), holdout=config.holdout, seed=config.split_seed, progress=rank == 0
    )  # fmt: skip
    return open_files(files, config, name=_NAME, rank=rank, world_size=world_size, device=device)


def load_webdataset_val(
    root: str | Path,
    config: DataConfig,
    *,
    rank: int = 0,
    world_size: int = 1,
    device: torch.device | str = "cpu",
) -> ImageData:
    """The same for evaluation alone.

    Raises:
        DataError: There are no shards to evaluate on, one of them is unusable, or torchvision is missing.
    """
    files = scan_shards_evaluation(root, asked_order(config))
    return for_evaluation(files, config, name=_NAME, rank=rank, world_size=world_size, device=device)


WEBDATASET = DataSet(
    name=_NAME,
    load=load_webdataset,
    load_val=load_webdataset_val,
    needs_root=True,
    options=FOLDER.options,
    own_statistics=False,
    description="images in WebDataset shards: root/train-*.tar and root/val-*.tar, or a pattern",
)
