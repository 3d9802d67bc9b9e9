"""Image data for training: `load_dataset` gives deterministic, resumable, shardable batches."""

from pcshrink.data.cifar10.prepare import prepare_cifar10
from pcshrink.data.config import DataConfig
from pcshrink.data.folder_scan import check_images
from pcshrink.data.load import DATASETS, load_dataset
from pcshrink.data.source import Batch, EvalSource, ImageData, TrainSource

__all__ = [
    "DATASETS",
    "Batch",
    "DataConfig",
    "EvalSource",
    "ImageData",
    "TrainSource",
    "check_images",
    "load_dataset",
    "prepare_cifar10",
]
