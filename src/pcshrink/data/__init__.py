"""Image data for training: `load_dataset` gives deterministic, resumable, shardable batches.

Nothing heavy is imported until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pcshrink.common.lazy import lazy_names

if TYPE_CHECKING:
    from pcshrink.common.preprocessing import Preprocessing
    from pcshrink.data.array_set import ArraySet
    from pcshrink.data.check import FolderCheck, check_folder, check_images
    from pcshrink.data.cifar10.prepare import prepare_cifar10
    from pcshrink.data.config import DataConfig
    from pcshrink.data.images import read_images
    from pcshrink.data.load import load_dataset
    from pcshrink.data.prediction import Prediction, predict
    from pcshrink.data.registry import DATASETS, DataSet
    from pcshrink.data.shard_writing import write_shards
    from pcshrink.data.source import Batch, EvalSource, ImageData, TrainSource

__all__ = [
    "DATASETS",
    "ArraySet",
    "Batch",
    "DataConfig",
    "DataSet",
    "EvalSource",
    "FolderCheck",
    "ImageData",
    "Prediction",
    "Preprocessing",
    "TrainSource",
    "check_folder",
    "check_images",
    "load_dataset",
    "predict",
    "prepare_cifar10",
    "read_images",
    "write_shards",
]

_HOMES = {
    "DATASETS": "registry",
    "ArraySet": "array_set",
    "Batch": "source",
    "DataConfig": "config",
    "DataSet": "registry",
    "EvalSource": "source",
    "FolderCheck": "check",
    "ImageData": "source",
    "Prediction": "prediction",
    "Preprocessing": "source",
    "TrainSource": "source",
    "check_folder": "check",
    "check_images": "check",
    "load_dataset": "load",
    "predict": "prediction",
    "prepare_cifar10": "cifar10.prepare",
    "read_images": "images",
    "write_shards": "shard_writing",
}

__getattr__ = lazy_names(__name__, _HOMES)
