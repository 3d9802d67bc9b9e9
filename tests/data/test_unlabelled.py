"""Images without labels: what is held out, and how answers become labels."""

import numpy as np
import pytest
import torch

from pcshrink.data import DataConfig, load_dataset
from pcshrink.data.unlabelled import has_class_folders, scan_unlabelled
from pcshrink.errors import DataError

pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.unit

SMALL = {"batch_size": 4, "eval_batch_size": 3, "image_size": 16, "resize_size": 20, "workers": 0}


def pictures(folder, count):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (24, 30, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number:03}.png")


def test_a_share_is_held_out_by_the_seed_alone(tmp_path):
    pictures(tmp_path / "deep" / "down", 20)
    first, again, other = (scan_unlabelled(tmp_path, seed=seed) for seed in (1, 1, 2))
    assert (len(first.train.paths), len(first.val.paths)) == (16, 4)
    assert not set(first.train.paths) & set(first.val.paths)
    assert first == again
    assert first.val != other.val
    assert "4 of the 20 images" in first.note


def test_val_where_there_is_one(tmp_path):
    for split, count in (("train", 5), ("val", 2)):
        pictures(tmp_path / split, count)
    files = scan_unlabelled(tmp_path)
    assert (len(files.train.paths), len(files.val.paths), files.note) == (5, 2, "")


@pytest.mark.parametrize(("count", "words"), [(0, "there are no images"), (1, "too few to hold any out")])
def test_too_few(tmp_path, count, words):
    pictures(tmp_path, count)
    with pytest.raises(DataError, match=words):
        scan_unlabelled(tmp_path)


def test_no_such_folder(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        scan_unlabelled(tmp_path / "nowhere")


def test_answers_become_labels(tmp_path):
    pictures(tmp_path, 10)
    data = load_dataset("unlabelled", tmp_path, DataConfig(**SMALL, holdout=0.3))
    assert (data.num_classes, data.taught) == (0, False)
    assert data.unlabelled.images.num_samples == 10
    taught = data.unlabelled.answered([0] * 7 + [2, 1, 2], 3)
    assert (taught.num_classes, taught.unlabelled, taught.taught) == (3, None, True)
    assert torch.cat([labels for _, labels in taught.val.batches()]).tolist() == [2, 1, 2]
    assert next(taught.train.batches(0))[1].tolist() == [0] * 4


def test_class_folders_or_loose_images(tmp_path):
    pictures(tmp_path / "loose", 2)
    pictures(tmp_path / "sorted" / "cat", 2)
    assert not has_class_folders(tmp_path / "loose")
    assert has_class_folders(tmp_path / "sorted")
